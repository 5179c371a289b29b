package crash_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

const (
	// The kills of an operation are spread from the earliest to the latest of these parts of its
	// duration.
	earliest, latest = 0.05, 0.95
	// again is how often a moment that was too late is retried, with the operation's new duration.
	again = 2
	// control is the number of further kills, each earlier than the one before, until one happens
	// early enough.
	control = 12
)

// moments returns how many kills there are of an operation. A prestarted kernel takes the same steps
// as another one, so make test kills it at the first and at the last of them.
func moments(op operation) int {
	switch {
	case hosttest.Full():
		return 8
	case op.awaits == spareWaits:
		return 2
	}
	return 4
}

// longest is the longest allowed duration of an operation that is not killed.
var longest = hosttest.Patience(hosttest.Hang)

// P29: a server that is killed at any moment of a change of state leaves the sandbox running or
// paused with its whole state, and no partial snapshot or copy.
func TestKilledWhileSaving(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, op)
			whole := b.strike(t, longest)
			if whole.midway {
				t.Fatalf("the operation takes more than %s", longest)
			}
			strikes := []strike{whole}
			took, hits := whole.took, 0
			for i := range moments(op) {
				part := earliest + (latest-earliest)*float64(i)/float64(moments(op)-1)
				for range again {
					k := b.strike(t, time.Duration(part*float64(took)))
					strikes = append(strikes, k)
					if k.midway {
						hits++
						break
					}
					took = k.took // it was measured while the machine was busier
				}
			}
			for at := took / 4; hits == 0 && len(strikes) < 1+again*moments(op)+control; at /= 2 {
				k := b.strike(t, at)
				strikes = append(strikes, k)
				if k.midway {
					hits++
				}
			}
			t.Log(strikes)
			if hits == 0 {
				t.Errorf("control: none of %d kills came during the operation: %v", len(strikes)-1, strikes)
			}
			b.end(t)
		})
	}
}

// strike is one kill of a server.
type strike struct {
	at     time.Duration // when it was planned
	took   time.Duration // until it came or the operation was over
	midway bool          // the operation had begun and was not over
	found  string        // what the next server found
}

func (k strike) String() string {
	when := "after"
	if k.midway {
		when = "midway"
	}
	return fmt.Sprintf("\n%s: %s %s: %s", k.at.Round(10*time.Microsecond), when, k.took.Round(10*time.Microsecond), k.found)
}

// strike begins the operation, kills the server at a moment of it, and checks the next one.
func (b *fixture) strike(t *testing.T, at time.Duration) strike {
	t.Helper()
	b.op.prepare(t, b)
	b.waits(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, ended := make(chan time.Time, 1), make(chan error, 1)
	go func() {
		ended <- b.op.act(ctx, b, func() {
			select {
			case began <- time.Now():
			default: // a second request of the same operation
			}
		})
	}()
	k := strike{at: at}
	var start time.Time
	over := func(err error) {
		if err != nil {
			t.Fatalf("failed before the kill: %v\n%s", err, b.s.Stderr())
		}
	}
	select {
	case start = <-began:
	case err := <-ended:
		select {
		case start = <-began: // both came before this looked
			ended <- err
		default:
			t.Fatalf("control: over before it began: %v\n%s", err, b.s.Stderr())
		}
	}
	select {
	case err := <-ended:
		k.took = time.Since(start)
		over(err)
		b.s.Kill()
	case <-time.After(time.Until(start.Add(at))):
		k.took = time.Since(start)
		b.s.Kill()
		cancel()
		// An operation that was over in time has its answer.
		k.midway = <-ended != nil
	}
	dead := b.s.Stderr()
	if at == longest && !strings.Contains(dead, b.op.uses) {
		t.Errorf("control: the operation did not use %q\n%s", b.op.uses, dead)
	}
	k.found = b.checkNextServer(t, !k.midway)
	if t.Failed() {
		t.Fatalf("after a kill %s\nthe dead server's log: %s", k, dead)
	}
	return k
}

// end removes everything that the kills have left, and checks that nothing else is left.
func (b *fixture) end(t *testing.T) {
	t.Helper()
	b.snapshots(t)
	if err := b.sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	b.s.Stop(t)
	servetest.NothingLeft(t, b.state, b.ids...)
	if drafts, _ := filepath.Glob(filepath.Join(b.state, "snapshots", "drafts", "*")); len(drafts) > 0 {
		t.Errorf("left: %q", drafts)
	}
	if strings.Contains(b.s.Stderr(), "panic") {
		t.Error(b.s.Stderr())
	}
}

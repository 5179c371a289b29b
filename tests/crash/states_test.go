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
	// earliest and latest are the parts of an operation's duration between which its kills are
	// spread.
	earliest, latest = 0.05, 0.95
	// retries is how often a kill that came too late is repeated, with the operation's new
	// duration.
	retries = 2
	// controlKills is the number of further kills, each earlier than the one before, until one
	// comes during the operation.
	controlKills = 12
)

// moments returns the number of kills of an operation. With a prestarted kernel the steps are the
// same, and without memory they are some of them, so make test kills only at the first and the last
// moment.
func moments(op operation) int {
	switch {
	case hosttest.Full():
		return 8
	case op.readyLog == prestartedReady || op.filesOnly:
		return 2
	}
	return 3
}

// maxOperationTime is the longest allowed duration of an operation that is not killed.
var maxOperationTime = hosttest.Patience(hosttest.Hang)

// P29: a server that is killed at any moment of a state change leaves the sandbox running or paused
// with its complete state, and no partial snapshot or copy.
func TestKillDuringStateChangeKeepsSandbox(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	for _, op := range operations() {
		t.Run(op.name, func(t *testing.T) {
			t.Parallel()
			b := newFixture(t, op)
			complete := b.killDuring(t, maxOperationTime)
			if complete.midway {
				t.Fatalf("the operation takes more than %s", maxOperationTime)
			}
			kills := []serverKill{complete}
			took, hits := complete.took, 0
			for i := range moments(op) {
				part := earliest + (latest-earliest)*float64(i)/float64(moments(op)-1)
				for range retries {
					k := b.killDuring(t, time.Duration(part*float64(took)))
					kills = append(kills, k)
					if k.midway {
						hits++
						break
					}
					took = k.took // the first measurement was on a quieter or busier machine
				}
			}
			for at := took / 4; hits == 0 && len(kills) < 1+retries*moments(op)+controlKills; at /= 2 {
				k := b.killDuring(t, at)
				kills = append(kills, k)
				if k.midway {
					hits++
				}
			}
			t.Log(kills)
			if hits == 0 {
				t.Errorf("control: none of %d kills came during the operation: %v", len(kills)-1, kills)
			}
			b.end(t)
		})
	}
}

// serverKill is one kill of a server during an operation.
type serverKill struct {
	at     time.Duration // planned time of the kill
	took   time.Duration // time until the kill or the end of the operation
	midway bool          // the operation had begun and not ended
	found  string        // the state at the next server
}

func (k serverKill) String() string {
	when := "after"
	if k.midway {
		when = "midway"
	}
	return fmt.Sprintf("\n%s: %s %s: %s", k.at.Round(10*time.Microsecond), when, k.took.Round(10*time.Microsecond), k.found)
}

// killDuring begins the operation, kills the server after a time, and checks the next server.
func (b *fixture) killDuring(t *testing.T, at time.Duration) serverKill {
	t.Helper()
	b.op.prepare(t, b)
	b.awaitReady(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, ended := make(chan time.Time, 1), make(chan error, 1)
	go func() {
		ended <- b.op.run(ctx, b, func() {
			select {
			case began <- time.Now():
			default: // a later request of the same operation
			}
		})
	}()
	k := serverKill{at: at}
	var start time.Time
	requireNoError := func(err error) {
		if err != nil {
			t.Fatalf("failed before the kill: %v\n%s", err, b.s.Stderr())
		}
	}
	select {
	case start = <-began:
	case err := <-ended:
		select {
		case start = <-began: // the operation began and ended at once
			ended <- err
		default:
			t.Fatalf("control: the operation ended before it began: %v\n%s", err, b.s.Stderr())
		}
	}
	select {
	case err := <-ended:
		k.took = time.Since(start)
		requireNoError(err)
		b.s.Kill()
	case <-time.After(time.Until(start.Add(at))):
		k.took = time.Since(start)
		b.s.Kill()
		cancel()
		// An operation that ended before the kill has returned no error.
		k.midway = <-ended != nil
	}
	dead := b.s.Stderr()
	if at == maxOperationTime && !strings.Contains(dead, b.op.usedLog) {
		t.Errorf("control: the operation did not use %q\n%s", b.op.usedLog, dead)
	}
	k.found = b.checkNextServer(t, !k.midway)
	if t.Failed() {
		t.Fatalf("after a kill %s\nthe dead server's log: %s", k, dead)
	}
	return k
}

// end removes what the kills have left, and checks that nothing else is left.
func (b *fixture) end(t *testing.T) {
	t.Helper()
	b.checkSnapshots(t)
	if err := b.sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	b.s.Stop(t)
	servetest.NothingLeft(t, b.state, b.ids...)
	if drafts, _ := filepath.Glob(filepath.Join(b.state, "snapshots", "drafts", "*")); len(drafts) > 0 {
		t.Errorf("drafts of snapshots are left: %q", drafts)
	}
	if strings.Contains(b.s.Stderr(), "panic") {
		t.Error(b.s.Stderr())
	}
}

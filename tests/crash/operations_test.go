package crash_test

import (
	"context"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// operation is an operation during which servers are killed.
type operation struct {
	name  string
	flags []string // of the server
	// readyLog is what a server logs when it is ready for the operation, and usedLog what it logs
	// during the operation. Either may be empty.
	readyLog, usedLog string
	onEnd             api.OnEnd // of the sandbox

	// prepare puts the sandbox into the state that the operation needs.
	prepare func(t *testing.T, b *fixture)
	// run executes the operation and calls began when the time until the kill starts.
	run func(ctx context.Context, b *fixture, began func()) error

	// newSandboxes is the number of sandboxes that the operation creates. emptySandboxes is set if
	// they have none of the fixture's content.
	newSandboxes   int
	emptySandboxes bool
	// filesOnly is set if the operation saves no memory. resets is set if it resets the sandbox to
	// its template, and rollsBack if it rolls back to the base. pauses is set if the sandbox always
	// ends up paused, even after a kill.
	filesOnly, resets, rollsBack, pauses bool
}

// life is the timeout of a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

// grace is the timeout of a sandbox that is to end by itself.
const grace = 200 * time.Millisecond

// poolFlags are a server's flags for a warm sandbox, and for a prestarted kernel after it saved a
// state.
var poolFlags = []string{"--pool", "64m", "--verbose"}

const (
	poolFilled      = `kind=base bytes=`
	poolUsed        = `from=pool`
	prestartedReady = `msg="prestarted kernel is ready"`
	prestartedUsed  = `msg="prestarted kernel is used"`
)

func operations() []operation {
	fork := operation{name: "fork", prepare: prepareRunning, newSandboxes: 2, run: onRequest(func(ctx context.Context, b *fixture) error {
		_, err := b.sb.Fork(ctx, api.CreateFork{Count: 2})
		return err
	})}
	rollback := operation{name: "rollback", prepare: prepareChanged, rollsBack: true, run: onRequest(func(ctx context.Context, b *fixture) error {
		return b.sb.Rollback(ctx, b.base)
	})}
	resume := operation{name: "resume", prepare: preparePaused, run: onRequest(func(ctx context.Context, b *fixture) error {
		return b.sb.Resume(ctx, life)
	})}
	from := operation{name: "create from a snapshot", prepare: prepareRunning, newSandboxes: 1, run: onRequest(func(ctx context.Context, b *fixture) error {
		_, err := b.client.Create(ctx, crannog.Template(b.base), crannog.Timeout(life))
		return err
	})}
	// All restores take a prestarted kernel in the same way. make test has one that replaces the
	// sandbox's own kernel, and one for new sandboxes.
	prestarted := []operation{fork.withPrestarted(), resume.withPrestarted()}
	if hosttest.Full() {
		prestarted = append(prestarted, rollback.withPrestarted(), from.withPrestarted())
	}
	return append(prestarted, []operation{
		{name: "pause", prepare: prepareRunning, run: onRequest(func(ctx context.Context, b *fixture) error { return b.sb.Pause(ctx) })},
		{name: "pause files", prepare: prepareRunning, filesOnly: true, run: onRequest(func(ctx context.Context, b *fixture) error { return b.sb.PauseFiles(ctx) })},
		{name: "snapshot", prepare: prepareRunning, run: onRequest(func(ctx context.Context, b *fixture) error {
			_, err := b.sb.Snapshot(ctx, api.CreateSnapshot{})
			return err
		})},
		{name: "snapshot files", prepare: prepareRunning, run: onRequest(func(ctx context.Context, b *fixture) error {
			_, err := b.sb.Snapshot(ctx, api.CreateSnapshot{FilesOnly: true})
			return err
		})},
		fork, rollback, resume, from,
		{name: "reset", prepare: prepareContent, resets: true, run: onRequest(func(ctx context.Context, b *fixture) error { return b.sb.Reset(ctx) })},
		{name: "pause at the end", prepare: prepareRunning, onEnd: api.OnEnd{Pause: true}, pauses: true, run: awaitEnd},
		{name: "wake", prepare: preparePaused, onEnd: api.OnEnd{Pause: true, Wake: true}, run: onRequest(func(ctx context.Context, b *fixture) error {
			return b.sb.CommandContext(ctx, "true").Run() // a command is traffic, which resumes the sandbox
		})},
		{
			name: "create from the pool", flags: poolFlags, readyLog: poolFilled, usedLog: poolUsed, prepare: prepareRunning, newSandboxes: 1, emptySandboxes: true,
			run: onRequest(func(ctx context.Context, b *fixture) error {
				_, err := b.client.Create(ctx, crannog.Timeout(life))
				return err
			}),
		},
	}...)
}

// withPrestarted returns the operation with a prestarted kernel, which a server has after it saved
// a state.
func (op operation) withPrestarted() operation {
	prepare := op.prepare
	op.name, op.flags, op.readyLog, op.usedLog = op.name+" with a prestarted kernel", poolFlags, prestartedReady, prestartedUsed
	op.prepare = func(t *testing.T, b *fixture) {
		prepareSaved(t, b)
		prepare(t, b)
	}
	return op
}

// onRequest returns an operation that begins when its request was sent.
func onRequest(do func(ctx context.Context, b *fixture) error) func(context.Context, *fixture, func()) error {
	return func(ctx context.Context, b *fixture, began func()) error {
		return do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { began() },
		}), b)
	}
}

// awaitEnd waits until the sandbox's timeout pauses it, without a request.
func awaitEnd(ctx context.Context, b *fixture, began func()) error {
	if err := b.sb.SetTimeout(ctx, grace); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(*b.sb.Info().EndsAt)):
	}
	began()
	for {
		info, err := b.sb.Refresh(ctx)
		if err != nil || info.State == "paused" {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// prepareRunning does nothing, because checkNextServer has left the sandbox running.
func prepareRunning(*testing.T, *fixture) {}

// preparePaused pauses the sandbox.
func preparePaused(t *testing.T, b *fixture) {
	t.Helper()
	if err := b.sb.Pause(t.Context()); err != nil {
		t.Fatalf("pause the sandbox: %v\n%s", err, b.s.Stderr())
	}
}

// prepareSaved makes the server save a state, and removes it.
func prepareSaved(t *testing.T, b *fixture) {
	t.Helper()
	n, err := b.sb.Snapshot(t.Context(), api.CreateSnapshot{FilesOnly: true})
	if err == nil {
		err = b.client.RemoveSnapshot(t.Context(), n.ID)
	}
	if err != nil {
		t.Fatalf("save and remove a snapshot: %v\n%s", err, b.s.Stderr())
	}
}

// prepareChanged gives the sandbox another file and number than its base has.
func prepareChanged(t *testing.T, b *fixture) {
	t.Helper()
	if output(t, b.sb, "ls /home/user") == changedFiles {
		return // the kill came before the rollback
	}
	// Wait until the number was added: of two pending signals, Python handles the
	// one with the lower number first.
	output(t, b.sb, `rm -f /tmp/added; pkill -USR2 -f '^python3 keep'; while ! test -e /tmp/added; do sleep 0.02; done; echo later > /home/user/later`)
	b.requireContent(t, b.sb)
}

// prepareContent restores the file and the program after a reset.
func prepareContent(t *testing.T, b *fixture) {
	t.Helper()
	if output(t, b.sb, "ls /home/user") == "" {
		b.prepareState(t)
	}
}

package crash_test

import (
	"context"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// operation is one during which servers are killed.
type operation struct {
	name  string
	flags []string // of the server
	// awaits is the log line of a server that is ready for the operation, and uses the log line of
	// the operation; "" is none.
	awaits, uses string
	onEnd        api.OnEnd // of the sandbox

	// prepare prepares everything that the operation needs.
	prepare func(t *testing.T, b *fixture)
	// act executes it and calls began when the timer is to start.
	act func(ctx context.Context, b *fixture, began func()) error

	// makes is how many sandboxes it creates; plain ones have none of our content.
	makes int
	plain bool
	// keeps is set if it saves files only, clears if it resets the sandbox to its template, undoes
	// if it rolls back to the base, and pauses if the sandbox is paused in the end whatever is
	// killed.
	keeps, clears, reverts, pauses bool
}

// life only ends a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

const grace = 200 * time.Millisecond // until a sandbox ends by itself

// pooled are a server's flags for a warm sandbox, and a spare kernel after a state was saved.
var pooled = []string{"--pool", "64m", "--verbose"}

const (
	poolFilled = `kind=base bytes=`
	poolUsed   = `from=pool`
	spareWaits = `msg="prestarted kernel is ready"`
	spareTaken = `msg="prestarted kernel is used"`
)

func operations() []operation {
	fork := operation{name: "fork", prepare: running, makes: 2, act: asks(func(ctx context.Context, b *fixture) error {
		_, err := b.sb.Fork(ctx, api.CreateFork{Count: 2})
		return err
	})}
	rollback := operation{name: "rollback", prepare: changed, reverts: true, act: asks(func(ctx context.Context, b *fixture) error {
		return b.sb.Rollback(ctx, b.base)
	})}
	resume := operation{name: "resume", prepare: paused, act: asks(func(ctx context.Context, b *fixture) error {
		return b.sb.Resume(ctx, life)
	})}
	from := operation{name: "create from a snapshot", prepare: running, makes: 1, act: asks(func(ctx context.Context, b *fixture) error {
		_, err := b.client.Create(ctx, crannog.Template(b.base), crannog.Timeout(life))
		return err
	})}
	return []operation{
		{name: "pause", prepare: running, act: asks(func(ctx context.Context, b *fixture) error { return b.sb.Pause(ctx) })},
		{name: "pause files", prepare: running, keeps: true, act: asks(func(ctx context.Context, b *fixture) error { return b.sb.PauseFiles(ctx) })},
		{name: "snapshot", prepare: running, act: asks(func(ctx context.Context, b *fixture) error {
			_, err := b.sb.Snapshot(ctx, api.CreateSnapshot{})
			return err
		})},
		{name: "snapshot files", prepare: running, act: asks(func(ctx context.Context, b *fixture) error {
			_, err := b.sb.Snapshot(ctx, api.CreateSnapshot{FilesOnly: true})
			return err
		})},
		fork, rollback, resume, from,
		{name: "reset", prepare: furnished, clears: true, act: asks(func(ctx context.Context, b *fixture) error { return b.sb.Reset(ctx) })},
		{name: "pause at the end", prepare: running, onEnd: api.OnEnd{Pause: true}, pauses: true, act: awaitEnd},
		{name: "wake", prepare: paused, onEnd: api.OnEnd{Pause: true, Wake: true}, act: asks(func(ctx context.Context, b *fixture) error {
			return b.sb.CommandContext(ctx, "true").Run() // it is traffic
		})},
		{
			name: "claim", flags: pooled, awaits: poolFilled, uses: poolUsed, prepare: running, makes: 1, plain: true,
			act: asks(func(ctx context.Context, b *fixture) error {
				_, err := b.client.Create(ctx, crannog.Timeout(life))
				return err
			}),
		},
		fork.withSpare(), rollback.withSpare(), resume.withSpare(), from.withSpare(),
	}
}

// withSpare is the operation with a spare kernel, which there is after a save.
func (op operation) withSpare() operation {
	prepare := op.prepare
	op.name, op.flags, op.awaits, op.uses = op.name+" with a prestarted kernel", pooled, spareWaits, spareTaken
	op.prepare = func(t *testing.T, b *fixture) {
		saved(t, b)
		prepare(t, b)
	}
	return op
}

// asks is an operation that counts as begun when its request was sent.
func asks(do func(ctx context.Context, b *fixture) error) func(context.Context, *fixture, func()) error {
	return func(ctx context.Context, b *fixture, began func()) error {
		return do(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { began() },
		}), b)
	}
}

// awaitEnd waits until the sandbox's time is up, an end that no caller requests.
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

// running needs nothing beyond the check of look: the sandbox runs.
func running(*testing.T, *fixture) {}

func paused(t *testing.T, b *fixture) {
	t.Helper()
	if err := b.sb.Pause(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, b.s.Stderr())
	}
}

// saved is a sandbox of which this server has saved a state.
func saved(t *testing.T, b *fixture) {
	t.Helper()
	n, err := b.sb.Snapshot(t.Context(), api.CreateSnapshot{FilesOnly: true})
	if err == nil {
		err = b.client.RemoveSnapshot(t.Context(), n.ID)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, b.s.Stderr())
	}
}

// changed has another file and number than its base.
func changed(t *testing.T, b *fixture) {
	t.Helper()
	if output(t, b.sb, "ls /home/user") == listChanged {
		return // the kill came before the rollback
	}
	// Wait until the number was added: of two pending signals, Python handles the
	// one with the lower number first.
	output(t, b.sb, `rm -f /tmp/added; pkill -USR2 -f '^python3 keep'; while ! test -e /tmp/added; do sleep 0.02; done; echo later > /home/user/later`)
	b.holds(t, b.sb)
}

// furnished has the file and the program again after a reset.
func furnished(t *testing.T, b *fixture) {
	t.Helper()
	if output(t, b.sb, "ls /home/user") == "" {
		b.prepareState(t)
	}
}

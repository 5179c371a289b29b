package cli

import (
	"context"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/causeway/approval"
)

// mostBlocked bounds what a run says about refusals: a program in a loop must
// not bury its own output.
const mostBlocked = 20

// blocked tells on standard error what a sandbox was refused while it runs,
// each thing once.
type blocked struct {
	app  *app
	sb   *crannog.Sandbox
	stop context.CancelFunc
	done sync.WaitGroup

	after uint64 // the last record before the command

	mu   sync.Mutex
	said map[string]bool
}

// tellBlocked begins to tell, or, if it is not to be live, remembers from where
// on the end will: a program that draws on the whole screen shares it badly.
// Without a network there is nothing to follow, and the names that were asked
// for are told at the end.
func (a *app) tellBlocked(ctx context.Context, sb *crannog.Sandbox, live bool) *blocked {
	ctx, cancel := context.WithCancel(ctx)
	b := &blocked{app: a, sb: sb, stop: cancel, said: map[string]bool{}}
	if sb.Info().Network.Linked {
		// What was refused so far was tried by us, to see that it is.
		err := sb.Flows(ctx, crannog.FlowOptions{}, func(r api.FlowRecord) error {
			b.after = max(b.after, r.Seq)
			return nil
		})
		if err != nil && a.verbose {
			a.note("what is blocked is not told: %v", err)
		}
		if !live {
			return b
		}
		b.done.Go(func() {
			// A stream that breaks off leaves the records, which net log shows.
			_ = sb.Flows(ctx, crannog.FlowOptions{Denied: true, Follow: true, After: b.after}, func(r api.FlowRecord) error {
				b.say(r)
				return nil
			})
		})
	}
	return b
}

// lastWords is how long the end of a run waits for what was refused last.
const lastWords = 2 * time.Second

// end stops telling, after what was refused so far has been told. Where there
// is no network, the names that were asked for are told if the command failed:
// one that did not fail has not missed them.
func (b *blocked) end(ctx context.Context, failed bool) {
	b.stop()
	b.done.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	info := b.sb.Info()
	if info.Network.Linked {
		_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: b.after}, func(r api.FlowRecord) error { b.say(r); return nil })
		return
	}
	if !failed {
		return
	}
	names, err := b.sb.Asked(ctx)
	if err != nil && b.app.verbose {
		b.app.note("the names that were asked for are not known: %v", err)
	}
	for _, name := range names {
		b.say(offline(info.ID, name))
	}
}

// say tells of one refusal. A look-up that is refused is told once with its
// name, and not again as the connection that never came.
func (b *blocked) say(r api.FlowRecord) {
	what := subject(r)
	if r.Kind == "dns" {
		what = approval.Text(r.Host, 200) // one line, whatever types of address were asked for
	}
	key := r.Rule + " " + what
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said[key] {
		return
	}
	b.said[key] = true
	switch n := len(b.said); {
	case n > mostBlocked+1:
		return
	case n > mostBlocked:
		b.app.note("more was blocked; crannog net log shows all of it while the sandbox is kept")
		return
	}
	if r.Fix != "" {
		b.app.note("blocked %s  rule=%s  (allow: %s)", what, r.Rule, approval.Text(r.Fix, 200))
		return
	}
	b.app.note("blocked %s  rule=%s", what, r.Rule)
}

package cli

import (
	"context"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/frontend/denial"
)

// blocked is what a sandbox was refused while a command runs, each thing once.
type blocked struct {
	app  *app
	sb   *crannog.Sandbox
	loud bool // tells it on standard error
	stop context.CancelFunc
	done sync.WaitGroup

	began time.Time
	after uint64 // the last record before the command

	mu   sync.Mutex
	list denial.List
}

// watchBlocked remembers from where on what is refused is the command's.
// Without a network there is nothing to follow, and the names that were asked
// for are known at the end.
func (a *app) watchBlocked(ctx context.Context, sb *crannog.Sandbox) *blocked {
	b := &blocked{app: a, sb: sb, began: time.Now(), stop: func() {}}
	if !sb.Info().Network.Attached {
		return b
	}
	// What was refused so far was another command's, or tried by us, to see
	// that it is.
	err := sb.Flows(ctx, crannog.FlowOptions{Newest: true}, func(r api.FlowRecord) error {
		b.after = max(b.after, r.Seq)
		return nil
	})
	if err != nil && a.verbose {
		a.note("denials cannot be shown: %v", err)
	}
	return b
}

// tellBlocked begins to tell, or, if it is not to be live, tells at the end: a
// program that draws on the whole screen shares it badly.
func (a *app) tellBlocked(ctx context.Context, sb *crannog.Sandbox, live bool) *blocked {
	b := a.watchBlocked(ctx, sb)
	b.loud = true
	if !live || !sb.Info().Network.Attached {
		return b
	}
	ctx, b.stop = context.WithCancel(ctx)
	b.done.Go(func() {
		// A stream that breaks off leaves the records, which net log shows.
		_ = sb.Flows(ctx, crannog.FlowOptions{Denied: true, Follow: true, After: b.after}, func(r api.FlowRecord) error {
			b.say(r)
			return nil
		})
	})
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
	b.app.screen.left()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	info := b.sb.Info()
	if info.Network.Attached {
		_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: b.after}, func(r api.FlowRecord) error { b.say(r); return nil })
		return
	}
	if !failed {
		return
	}
	names, err := b.sb.AskedWithin(ctx, time.Since(b.began))
	if err != nil && b.app.verbose {
		b.app.note("the names that the program tried to resolve are not known: %v", err)
	}
	for _, name := range names {
		b.say(denial.Name(info.ID, name))
	}
}

// all is what was refused, for machines.
func (b *blocked) all(ctx context.Context, failed bool) []api.Denial {
	b.end(ctx, failed)
	return b.list.All()
}

// say tells of one refusal. A look-up that is refused is told once with its
// name, and not again as the connection that never came.
func (b *blocked) say(r api.FlowRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	told, n := b.list.Add(r)
	switch {
	case n == 0 || !b.loud:
	case n > denial.Most:
		b.note("more was blocked; crannog net log shows all of it while the sandbox is kept")
	case told.Fix != "":
		b.note("blocked %s  rule=%s  (allow: %s)", told.What, told.Rule, told.Fix)
	default:
		b.note("blocked %s  rule=%s", told.What, told.Rule)
	}
}

// note tells, once no program uses the whole screen.
func (b *blocked) note(format string, args ...any) {
	b.app.screen.when(func() { b.app.note(format, args...) })
}

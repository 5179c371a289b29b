package cli

import (
	"context"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/frontend/denial"
)

// blocked collects and reports the denials of a sandbox while a command runs, each once.
type blocked struct {
	app  *app
	sb   *crannog.Sandbox
	loud bool // print each denial on standard error
	stop context.CancelFunc
	done sync.WaitGroup

	started time.Time
	after   uint64 // the last flow before the command

	mu   sync.Mutex
	list denial.List
}

// watchBlocked records the position in the denials at which the command begins. Without a network
// there are no flows to follow; the names that programs tried to resolve are read at the end.
func (a runVerbs) watchBlocked(ctx context.Context, sb *crannog.Sandbox) *blocked {
	b := &blocked{app: a.app, sb: sb, started: time.Now(), stop: func() {}}
	if !sb.Info().Network.Attached {
		return b
	}
	// Earlier denials belong to another command, or to the readiness probes.
	err := sb.Flows(ctx, crannog.FlowOptions{Newest: true}, func(r api.FlowRecord) error {
		b.after = max(b.after, r.Seq)
		return nil
	})
	if err != nil && a.verbose {
		a.note("denials cannot be shown: %v", err)
	}
	return b
}

// reportBlocked starts to print denials. If live is false, it prints them at the end, because
// messages would disturb a program that uses the whole screen.
func (a runVerbs) reportBlocked(ctx context.Context, sb *crannog.Sandbox, live bool) *blocked {
	b := a.watchBlocked(ctx, sb)
	b.loud = true
	if !live || !sb.Info().Network.Attached {
		return b
	}
	ctx, b.stop = context.WithCancel(ctx)
	b.done.Go(func() {
		// If the stream breaks, the flows are still stored, and net log shows them.
		_ = sb.Flows(ctx, crannog.FlowOptions{Denied: true, Follow: true, After: b.after}, func(r api.FlowRecord) error {
			b.print(r)
			return nil
		})
	})
	return b
}

// lastDenialsTimeout bounds how long the end of a run waits for the last denials.
const lastDenialsTimeout = 2 * time.Second

// end stops printing after all denials so far. Without a network it prints the names that programs
// tried to resolve, if the command failed: a successful command did not need them.
func (b *blocked) end(ctx context.Context, failed bool) {
	b.stop()
	b.done.Wait()
	b.app.screen.left()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastDenialsTimeout)
	defer cancel()
	info := b.sb.Info()
	if info.Network.Attached {
		_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: b.after}, func(r api.FlowRecord) error { b.print(r); return nil })
		return
	}
	if !failed {
		return
	}
	names, err := b.sb.AskedWithin(ctx, time.Since(b.started))
	if err != nil && b.app.verbose {
		b.app.note("the names that the program tried to resolve are not known: %v", err)
	}
	for _, name := range names {
		b.print(denial.Name(info.ID, name))
	}
}

// all returns the denials, for JSON output.
func (b *blocked) all(ctx context.Context, failed bool) []api.Denial {
	b.end(ctx, failed)
	return b.list.All()
}

// print prints one denial. It prints a denied look-up of a name once, and does not repeat it
// for the connection that could not be made.
func (b *blocked) print(r api.FlowRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	reported, n := b.list.Add(r)
	switch {
	case n == 0 || !b.loud:
	case n > denial.MaxListed:
		b.note("more was blocked; crannog net log shows all while the sandbox is listed")
	case reported.Fix != "":
		b.note("blocked %s  rule=%s  (allow: %s)", reported.What, reported.Rule, reported.Fix)
	case reported.Reason != "":
		b.note("blocked %s  rule=%s: %s", reported.What, reported.Rule, reported.Reason)
	default:
		b.note("blocked %s  rule=%s", reported.What, reported.Rule)
	}
}

// note prints a message as soon as no program uses the whole screen.
func (b *blocked) note(format string, args ...any) {
	b.app.screen.when(func() { b.app.note(format, args...) })
}

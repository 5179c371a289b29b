package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/host/text"
)

// approver is what takes answers. *crannog.Client does, for a server as for
// an engine in this process.
type approver interface {
	watcher
	Approve(ctx context.Context, id, reason string, remember bool) (api.Approval, error)
	Deny(ctx context.Context, id, reason string) (api.Approval, error)
}

// watcher tells of approvals.
type watcher interface {
	WatchApprovals(ctx context.Context, sandbox, last string, each func(api.ApprovalEvent) error) (string, error)
}

// askHere puts the questions of one sandbox to the person at the console
// until ctx ends. Without a terminal it denies them at once: no person can answer,
// and the program need not wait.
func (a *app) askHere(ctx context.Context, service approver, sandbox string, c *console) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &desk{wake: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- follow(ctx, service, sandbox, func(e api.ApprovalEvent) error { d.hear(e.Approval); return nil })
	}()
	for {
		r, over, ok := d.next(ctx)
		if !ok {
			return <-ended
		}
		if err := a.answer(over, service, c, r); err != nil && ctx.Err() == nil {
			a.note("%s", inert(fail("answer "+r.ID, err).Error()))
		}
		d.done()
	}
}

// asking begins to put the questions of a sandbox to the person at the
// terminal, which the command then shares. The returned function ends it.
func (a *app) asking(ctx context.Context, c *connection, sb *crannog.Sandbox, cmd *crannog.Cmd) func() {
	at := a.openConsole()
	if at.tty == nil {
		a.note("there is no terminal to ask at: each request that needs an approval is denied")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = at.program(a.Stdout, a.Stderr)
	// What we say ourselves must not be written into a question either.
	a.Stderr = cmd.Stderr
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.askHere(ctx, c, sb.ID(), at); err != nil && ctx.Err() == nil {
			a.note("this terminal shows no more requests: %v; crannog approvals still does", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// answerTime is how long an answer may take to get through.
const answerTime = 10 * time.Second

// errElsewhere ends a question that somebody else answered.
var errElsewhere = errors.New("it was decided elsewhere")

// answer asks about one approval and passes on what the person says.
func (a *app) answer(ctx context.Context, service approver, c *console, r api.Approval) error {
	// The news of our own answer ends the question's context, and must not end
	// the answer.
	pass := func(say func(context.Context) (api.Approval, error)) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		defer cancel()
		r, err := say(ctx)
		if err == nil {
			a.tellMissing(r)
		}
		return over(err)
	}
	deny := func(why string) error {
		return pass(func(ctx context.Context) (api.Approval, error) { return service.Deny(ctx, r.ID, why) })
	}
	approve := func(remember bool) error {
		return pass(func(ctx context.Context) (api.Approval, error) { return service.Approve(ctx, r.ID, "", remember) })
	}
	if c.tty == nil {
		return deny("there is no terminal to ask at")
	}
	question, prompt := promptFor(r)
	lines := question
	for {
		text, err := c.ask(ctx, lines, prompt)
		switch {
		case errors.Is(err, errElsewhere):
			a.note("%s was decided elsewhere", inert(r.ID))
			return nil
		case errors.Is(err, errNoAnswer):
			text = "n"
		case err != nil:
			return err
		}
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "y", "yes":
			return approve(false)
		case "n", "no":
			return deny("the person at the terminal said no")
		case "a", "always":
			if r.Always != "" {
				return approve(true)
			}
		}
		// All of it again: the program may have written over it since.
		lines = append([]string{"Please type one of the answers and press Enter."}, question...)
	}
}

// over makes nothing of an answer that came too late.
func over(err error) error {
	if crannog.Code(err) == "approval_over" {
		return nil
	}
	return err
}

// Bounds of a question on a terminal: more would push its beginning away.
const (
	promptFacts = 12
	promptWidth = 200
)

func promptFor(r api.Approval) (lines []string, prompt string) {
	r.Summary = text.Strict(r.Summary, promptWidth)
	short := make(map[string]string, len(r.Facts))
	for i, name := range approval.FactNames(r.Facts) {
		if i < promptFacts {
			short[name] = text.Strict(r.Facts[name], promptWidth)
		}
	}
	hidden := len(r.Facts) - len(short)
	r.Facts = short
	lines = append([]string{"crannog: the program in the sandbox asks for something that its policy leaves to you."}, describe(r, time.Now())...)
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("and %d more facts: crannog approvals %s", hidden, inert(r.ID)))
	}
	prompt = "Allow it? yes (this once), no"
	if r.Always != "" {
		prompt += ", always (" + inert(r.Always) + ")"
	}
	return lines, prompt + ": "
}

// desk is the queue of questions that wait for the person.
type desk struct {
	wake chan struct{}

	mu    sync.Mutex
	queue []api.Approval
	seen  []string // asked here before
	// current is what is being asked, cancel ends that.
	current string
	cancel  context.CancelCauseFunc
}

// hear takes in what happened to an approval.
func (d *desk) hear(r api.Approval) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.State != string(approval.Pending) {
		d.queue = slices.DeleteFunc(d.queue, func(q api.Approval) bool { return q.ID == r.ID })
		if r.ID == d.current {
			d.cancel(errElsewhere)
		}
		return
	}
	if slices.Contains(d.seen, r.ID) {
		return
	}
	d.seen = append(d.seen, r.ID)
	d.queue = append(d.queue, r)
	select {
	case d.wake <- struct{}{}:
	default: // a wake-up is on its way
	}
}

// next waits for a question. Its context ends when somebody else answers.
func (d *desk) next(ctx context.Context) (api.Approval, context.Context, bool) {
	for ctx.Err() == nil {
		d.mu.Lock()
		if len(d.queue) > 0 {
			r := d.queue[0]
			d.queue = d.queue[1:]
			over, cancel := context.WithCancelCause(ctx)
			d.current, d.cancel = r.ID, cancel
			d.mu.Unlock()
			return r, over, true
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-d.wake:
		}
	}
	return api.Approval{}, nil, false
}

func (d *desk) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel(nil)
	d.current = ""
}

// watchBackoff is the first wait before a broken stream is taken up.
const watchBackoff = time.Second

// follow watches until ctx ends. A stream that breaks off is taken up where
// it was, so that a restart of the server is no gap.
func follow(ctx context.Context, c watcher, sandbox string, each func(api.ApprovalEvent) error) error {
	last, heard, wait := "", false, watchBackoff
	for {
		var err error
		last, err = c.WatchApprovals(ctx, sandbox, last, func(e api.ApprovalEvent) error {
			heard, wait = true, watchBackoff
			return each(e)
		})
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if !heard || crannog.Code(err) != "server_unreachable" {
			return fail("watch approvals", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		wait = min(2*wait, 30*time.Second)
	}
}

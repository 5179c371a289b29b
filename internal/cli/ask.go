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

// approver decides approval requests. *crannog.Client implements it, both for a server and for an
// engine in this process.
type approver interface {
	watcher
	Approve(ctx context.Context, id, reason string, always bool) (api.Approval, error)
	Deny(ctx context.Context, id, reason string) (api.Approval, error)
}

// watcher delivers events of approval requests.
type watcher interface {
	WatchApprovals(ctx context.Context, sandbox, last string, each func(api.ApprovalEvent) error) (string, error)
}

// decideAtTerminal shows the approval requests of one sandbox to the person at the terminal until
// ctx ends. Without a terminal it denies them at once: no person can decide, and the program need
// not wait.
func (a approvalVerbs) decideAtTerminal(ctx context.Context, service approver, sandbox string, c *console) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d := &promptQueue{wake: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- follow(ctx, service, sandbox, func(e api.ApprovalEvent) error { d.handle(e.Approval); return nil })
	}()
	for {
		r, requestCtx, ok := d.next(ctx)
		if !ok {
			return <-ended
		}
		if err := a.answer(requestCtx, service, c, r); err != nil && ctx.Err() == nil {
			a.note("%s", inert(fail("answer "+r.ID, err).Error()))
		}
		d.done()
	}
}

// startPrompts starts to show the approval requests of a sandbox at the terminal, which the command
// then shares. The returned function stops the prompts.
func (a approvalVerbs) startPrompts(ctx context.Context, c *connection, sb *crannog.Sandbox, cmd *crannog.Cmd) func() {
	at := a.openConsole()
	if at.tty == nil {
		a.note("no terminal: each request that needs an approval is denied")
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = at.program(a.Stdout, a.Stderr)
	// Messages of this program must not be written into an open prompt either.
	a.Stderr = cmd.Stderr
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.decideAtTerminal(ctx, c, sb.ID(), at); err != nil && ctx.Err() == nil {
			a.note("this terminal shows no more requests: %v; use crannog approvals instead", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// decisionTime bounds sending a decision.
const decisionTime = 10 * time.Second

// errDecidedElsewhere is the cause that ends a prompt whose request was decided elsewhere.
var errDecidedElsewhere = errors.New("it was decided elsewhere")

// answer shows one approval request and sends the person's decision.
func (a approvalVerbs) answer(ctx context.Context, service approver, c *console, r api.Approval) error {
	// The event of this decision ends the prompt's context, and must not cancel sending the
	// decision.
	decide := func(send func(context.Context) (api.Approval, error)) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), decisionTime)
		defer cancel()
		r, err := send(ctx)
		if err == nil {
			a.reportMissing(r)
		}
		return ignoreTooLate(err)
	}
	deny := func(why string) error {
		return decide(func(ctx context.Context) (api.Approval, error) { return service.Deny(ctx, r.ID, why) })
	}
	approve := func(always bool) error {
		return decide(func(ctx context.Context) (api.Approval, error) { return service.Approve(ctx, r.ID, "", always) })
	}
	if c.tty == nil {
		return deny("there is no terminal for a prompt")
	}
	question, prompt := promptFor(r)
	lines := question
	for {
		text, err := c.ask(ctx, lines, prompt)
		switch {
		case errors.Is(err, errDecidedElsewhere):
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
			return deny("denied at the terminal")
		case "a", "always":
			if r.Always != "" {
				return approve(true)
			}
		}
		// The request is printed again, because the program may have overwritten it.
		lines = append([]string{"Please type one of the answers and press Enter."}, question...)
	}
}

// ignoreTooLate returns nil for the error of a decision about a request that was already decided.
func ignoreTooLate(err error) error {
	if crannog.Code(err) == "approval_over" {
		return nil
	}
	return err
}

// Limits of the text of a prompt on a terminal. With more, its beginning would scroll out of view.
const (
	promptFacts = 12
	promptWidth = 200
)

// promptFor returns the text of a request and the prompt for the decision.
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
	lines = append([]string{"crannog: a request of the program in the sandbox needs your approval."}, describe(r, time.Now())...)
	if hidden > 0 {
		lines = append(lines, fmt.Sprintf("and %d more facts: crannog approvals %s", hidden, inert(r.ID)))
	}
	prompt = "Allow it? yes (this once), no"
	if r.Always != "" {
		prompt += ", always (" + inert(r.Always) + ")"
	}
	return lines, prompt + ": "
}

// promptQueue is the queue of approval requests for the person at the terminal.
type promptQueue struct {
	wake chan struct{}

	mu    sync.Mutex
	queue []api.Approval
	seen  []string // shown here before
	// current is the request that is being shown, and cancel ends its prompt.
	current string
	cancel  context.CancelCauseFunc
}

// handle processes an event of an approval request.
func (d *promptQueue) handle(r api.Approval) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.State != string(approval.Pending) {
		d.queue = slices.DeleteFunc(d.queue, func(q api.Approval) bool { return q.ID == r.ID })
		if r.ID == d.current {
			d.cancel(errDecidedElsewhere)
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
	default: // a wake-up is already queued
	}
}

// next waits for a request. Its context ends if the request is decided elsewhere.
func (d *promptQueue) next(ctx context.Context) (api.Approval, context.Context, bool) {
	for ctx.Err() == nil {
		d.mu.Lock()
		if len(d.queue) > 0 {
			r := d.queue[0]
			d.queue = d.queue[1:]
			requestCtx, cancel := context.WithCancelCause(ctx)
			d.current, d.cancel = r.ID, cancel
			d.mu.Unlock()
			return r, requestCtx, true
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-d.wake:
		}
	}
	return api.Approval{}, nil, false
}

// done ends the request that next returned.
func (d *promptQueue) done() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel(nil)
	d.current = ""
}

// watchBackoff is the first pause before a broken stream is reopened.
const watchBackoff = time.Second

// follow watches until ctx ends. It continues a broken stream where it ended, so that a restart of
// the server loses no events.
func follow(ctx context.Context, c watcher, sandbox string, each func(api.ApprovalEvent) error) error {
	last, received, wait := "", false, watchBackoff
	for {
		var err error
		last, err = c.WatchApprovals(ctx, sandbox, last, func(e api.ApprovalEvent) error {
			received, wait = true, watchBackoff
			return each(e)
		})
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if !received || crannog.Code(err) != "server_unreachable" {
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

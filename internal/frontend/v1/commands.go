package v1

import (
	"context"
	"io"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/sandbox"
)

// Commands runs commands in sandboxes for this server's own work, such as builds. Their output is
// redacted and recorded like that of callers' commands.
type Commands struct{ handlers *execHandlers }

// NewCommands returns a Commands that uses the guests of sandboxes.
func NewCommands(guests Guests, tap *observe.Tap) *Commands {
	return &Commands{&execHandlers{guests: guests, tap: tap}}
}

// Run runs a command and passes on its output. When ctx ends, the command is killed.
func (c *Commands) Run(ctx context.Context, caller sandbox.Principal, sb sandbox.Sandbox, spec client.Spec, out io.Writer) (client.Exit, error) {
	redactor, err := c.handlers.guests.Redactor(ctx, sb.ID)
	if err != nil {
		return client.Exit{}, err
	}
	guest, done := c.handlers.guest(caller, sb, redactor)
	defer done()
	run := &commandRun{handlers: c.handlers, caller: caller, sb: sb, client: guest}
	p, err := run.start(ctx, spec)
	if err != nil {
		return client.Exit{}, err
	}
	exit, err := p.Stream(out, out)
	if err != nil {
		err = run.abandon(ctx, p, err)
		if ctx.Err() != nil {
			err = fault.Wrap(err, fault.Canceled, "command_canceled", "the command was canceled")
		}
	}
	return exit, err
}

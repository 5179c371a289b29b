package v1

import (
	"context"
	"log/slog"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/sandbox"
)

// deniedTime bounds how long an answer waits for what was refused: a guest
// that a program stopped must not hold it up. What was refused is on record.
const deniedTime = 2 * time.Second

// denials finds what sandboxes were refused while a command ran.
type denials struct {
	networkLog NetworkLog
	log        *slog.Logger
}

// mark is the place among what a sandbox is refused at which a command begins.
type mark struct {
	at    time.Time
	flows int64
}

// mark makes one. It reads nothing: most commands are refused nothing.
func (d *denials) mark(sb sandbox.Sandbox) mark {
	m := mark{at: time.Now()}
	if sb.Access.Linked() {
		m.flows = d.networkLog.FlowSize(sb.ID)
	}
	return m
}

// since returns what a sandbox was refused after begin. Without a network these are the
// names that were asked for, if the command failed: one that did not fail has
// not missed them.
func (d *denials) since(ctx context.Context, who sandbox.Principal, sb sandbox.Sandbox, begin mark, failed bool) []api.Denial {
	ctx, cancel := context.WithTimeout(ctx, deniedTime)
	defer cancel()
	var list denial.List
	switch {
	case sb.Access.Linked():
		if d.networkLog.FlowSize(sb.ID) == begin.flows {
			return nil
		}
		filter := flows.Filter{Denied: true, From: begin.flows}
		err := d.networkLog.Flows(ctx, who, sb.ID, filter, false, func(r egress.Record) error {
			list.Add(denial.Flow(r))
			return ctx.Err()
		})
		if err != nil {
			d.log.Debug("what was refused is not told", "sandbox", sb.ID, "err", err)
		}
	case failed:
		names, err := d.networkLog.Asked(ctx, who, sb.ID, begin.at)
		if err != nil {
			d.log.Debug("names that were asked for are not told", "sandbox", sb.ID, "err", err)
		}
		for _, name := range names {
			list.Add(denial.Name(sb.ID, name))
		}
	}
	return list.All()
}

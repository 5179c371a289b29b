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

// denialTimeout bounds how long an answer waits for denials, so that a guest that a program stopped
// does not delay it. The audit log contains all denials.
const denialTimeout = 2 * time.Second

// denials finds the denials of a sandbox during a command.
type denials struct {
	networkLog NetworkLog
	log        *slog.Logger
}

// mark is the position in a sandbox's denials at which a command begins.
type mark struct {
	at    time.Time
	flows int64
}

// mark returns the current position. It reads no denials, because most commands have none.
func (d *denials) mark(sb sandbox.Sandbox) mark {
	m := mark{at: time.Now()}
	if sb.Access.Linked() {
		m.flows = d.networkLog.FlowSize(sb.ID)
	}
	return m
}

// since returns the denials after begin. Without a network these are the names that programs tried
// to resolve, if the command failed: a successful command did not need them.
func (d *denials) since(ctx context.Context, caller sandbox.Principal, sb sandbox.Sandbox, begin mark, failed bool) []api.Denial {
	ctx, cancel := context.WithTimeout(ctx, denialTimeout)
	defer cancel()
	var list denial.List
	switch {
	case sb.Access.Linked():
		if d.networkLog.FlowSize(sb.ID) == begin.flows {
			return nil
		}
		filter := flows.Filter{Denied: true, From: begin.flows}
		err := d.networkLog.Flows(ctx, caller, sb.ID, filter, false, func(r egress.Record) error {
			list.Add(denial.Flow(r))
			return ctx.Err()
		})
		if err != nil {
			d.log.Debug("denials of a command are not known", "sandbox", sb.ID, "err", err)
		}
	case failed:
		names, err := d.networkLog.Asked(ctx, caller, sb.ID, begin.at)
		if err != nil {
			d.log.Debug("names that programs tried to resolve are not known", "sandbox", sb.ID, "err", err)
		}
		for _, name := range names {
			list.Add(denial.Name(sb.ID, name))
		}
	}
	return list.All()
}

package v1

import (
	"context"
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

// mark is the place among what a sandbox is refused at which a command begins.
type mark struct {
	at    time.Time
	flows int64
}

// mark makes one. It reads nothing: most commands are refused nothing.
func (s *server) mark(sb sandbox.Sandbox) mark {
	m := mark{at: time.Now()}
	if sb.Access.Linked() {
		m.flows = s.Networks.FlowSize(sb.ID)
	}
	return m
}

// denied is what a sandbox was refused since. Without a network these are the
// names that were asked for, if the command failed: one that did not fail has
// not missed them.
func (s *server) denied(ctx context.Context, who sandbox.Principal, sb sandbox.Sandbox, since mark, failed bool) []api.Denial {
	ctx, cancel := context.WithTimeout(ctx, deniedTime)
	defer cancel()
	var list denial.List
	switch {
	case sb.Access.Linked():
		if s.Networks.FlowSize(sb.ID) == since.flows {
			return nil
		}
		filter := flows.Filter{Denied: true, From: since.flows}
		err := s.Networks.Flows(ctx, who, sb.ID, filter, false, func(r egress.Record) error {
			list.Add(denial.Flow(r))
			return ctx.Err()
		})
		if err != nil {
			s.Log.Debug("what was refused is not told", "sandbox", sb.ID, "err", err)
		}
	case failed:
		names, err := s.Networks.Asked(ctx, who, sb.ID, since.at)
		if err != nil {
			s.Log.Debug("names that were asked for are not told", "sandbox", sb.ID, "err", err)
		}
		for _, name := range names {
			list.Add(denial.Name(sb.ID, name))
		}
	}
	return list.All()
}

package lifecycle

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// readerLifetime is the lifetime of the temporary copy, which ends itself if its process has died.
const readerLifetime = 10 * time.Minute

// bootReader boots a temporary copy of a saved state in order to read its files. The copy has no
// network, no secrets and no path masks, belongs to this process, and is removed by the returned
// function. Its programs continue to run, but can reach no peer.
func (s *Service) bootReader(ctx context.Context, r sandbox.Row, base sandbox.Base, limits sandbox.Limits, workspace string, saved sandbox.Saved) (sandbox.Row, func() error, error) {
	if err := s.states.CheckFits(ctx, r.Engine, r.TemplateID, base, saved); err != nil {
		return sandbox.Row{}, nil, err
	}
	// The policy of its network does not matter, and bindings would be refused without a network.
	access := sandbox.Access{Level: r.PolicyLevel, Net: sandbox.NetNone}
	p, err := s.planner.compileFor(r, access)
	if err != nil {
		return sandbox.Row{}, nil, err
	}
	c := s.planner.copyRow(r, nil, readerLifetime, true)
	c.Base, c.Limits, c.Workspace, c.Access = base, limits, workspace, access
	c.PolicyDigest, c.TrafficToken, c.OnEnd = p.Digest(), "", sandbox.OnEnd{}
	spec, config := s.planner.compose(&c, p)
	ctx, release, err := s.operations.beginNew(ctx, c.ID)
	if err != nil {
		return sandbox.Row{}, nil, err
	}
	defer release()
	started := time.Now()
	from := source{Source: savedstate.Source{Saved: saved}, renew: guest.Copied, again: true, reading: true}
	if err := s.runCreation(ctx, s.newBoot(c, p, spec, config, from)); err != nil {
		return sandbox.Row{}, nil, err
	}
	s.created(ctx, c, started, "reading")
	return c, func() error { return s.drop(context.WithoutCancel(ctx), c.ID) }, nil
}

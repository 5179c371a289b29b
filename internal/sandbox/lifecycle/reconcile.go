package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Reconcile makes the store and the engines agree, as after a crash. Several processes may
// reconcile at once, also while others create and remove sandboxes. It continues after an error and
// returns all errors, except those of a single sandbox. Such an error is logged and reported, and
// retried by the maintenance loop or, without a row, at the next start. Otherwise one broken
// sandbox would make the whole state directory unusable.
func (s *Service) Reconcile(ctx context.Context) (Report, error) {
	report, err := s.reconciler.run(ctx)
	if err != nil {
		return report, fmt.Errorf("reconcile: %w", err)
	}
	return report, errors.Join(s.reconciler.dropEnded(ctx), s.reconnect(ctx), s.intake.CatchUp(ctx), s.intake.SweepFlows(ctx), s.data.sweep(ctx))
}

// Pruned is the result of Prune.
type Pruned struct {
	Sandboxes []sandbox.Sandbox
	// Freed is the number of freed bytes of saved states that were unreferenced or stored twice.
	Freed int64
}

// Prune removes the rows of stopped sandboxes that the caller may see and, for a local caller, all
// unused data.
func (s *Service) Prune(ctx context.Context, caller sandbox.Principal) (Pruned, error) {
	var out Pruned
	var failed []string
	if err := caller.Check(); err != nil {
		return out, err
	}
	if caller.Local {
		report, err := s.Reconcile(ctx)
		if err != nil {
			return out, err
		}
		failed = report.Failed
		if err := s.data.discard(ctx); err != nil {
			return out, err
		}
		out.Freed, err = s.sweepStates(ctx)
		if err == nil {
			// Without a server, no maintenance loop would deduplicate the images later.
			var deduplicated int64
			deduplicated, err = s.states.Deduplicate(ctx)
			out.Freed += deduplicated
		}
		if err != nil {
			return out, err
		}
	}
	rows, err := s.store.List(ctx, sandbox.Query{
		Owner: caller.KeyID, AllOwners: caller.Local, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Stopped}},
	})
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		if err := s.erase(ctx, r.ID); err != nil {
			return out, err
		}
		out.Sandboxes = append(out.Sandboxes, r.Sandbox)
	}
	if len(failed) > 0 {
		return out, fault.Newf(fault.Internal, "prune_incomplete", "data of ended sandboxes could not be removed: %s", strings.Join(failed, ", ")).
			WithHint("the server's log has the reasons")
	}
	return out, nil
}

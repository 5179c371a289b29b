package lifecycle

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// maxCopies is the greatest number of copies of one call.
const maxCopies = 100

// Fork copies a running sandbox. If the audit log refuses the entry of the request, all copies are
// removed.
func (s *Service) Fork(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	forks, err := s.fork(ctx, caller, ref, req)
	if err != nil {
		return forks, err
	}
	commitErr := auditlog.Commit(ctx)
	if commitErr == nil {
		return forks, nil
	}
	for _, f := range forks {
		if f.Err == nil {
			commitErr = errors.Join(commitErr, s.drop(ctx, f.Sandbox.ID))
		}
	}
	return nil, commitErr
}

func (s *Service) fork(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	if err := s.starts.room.Check(); err != nil {
		return nil, err
	}
	ttl, err := s.planner.checkFork(caller, req)
	if err != nil {
		return nil, err
	}
	r, draft, needs, err := s.saveForCopies(ctx, caller, ref, req.FilesOnly)
	if err != nil {
		return nil, err
	}
	started := time.Now()
	from := savedstate.Source{Saved: sandbox.Saved{FilesOnly: req.FilesOnly}, Dir: draft.Dir(), Needs: needs}
	forks := s.copyAll(ctx, r, source{Source: from, renew: guest.Copied, again: true}, ttl, req)
	copied := payload.Copied{Asked: len(forks), FilesOnly: req.FilesOnly}
	for _, f := range forks {
		if f.Err == nil {
			copied.Copies = append(copied.Copies, f.Sandbox.ID)
		}
	}
	s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxCopied, r.ID, copied))
	s.log.InfoContext(ctx, "sandbox copied", "sandbox", r.ID, "copies", len(copied.Copies), "of", len(forks), "took", time.Since(started))
	s.note(ctx, r.ID, "info", "sandbox copied", nil)
	// A draft that cannot be removed here is removed after the end of this process.
	if err := draft.Abort(); err != nil {
		s.log.Warn("draft of copies not removed", "sandbox", r.ID, "err", err)
	}
	return forks, nil
}

// saveForCopies saves a running sandbox once for all its copies.
func (s *Service) saveForCopies(ctx context.Context, caller sandbox.Principal, ref string, filesOnly bool) (sandbox.Row, sandbox.Draft, *sandbox.Needs, error) {
	ctx, r, release, err := s.lockForChange(ctx, caller, ref)
	if err != nil {
		return sandbox.Row{}, nil, nil, err
	}
	defer release()
	if r.State != sandbox.Running {
		return sandbox.Row{}, nil, nil, stateConflict(r)
	}
	save, _, err := s.states.Saver(ctx, r, filesOnly)
	if err != nil {
		return sandbox.Row{}, nil, nil, err
	}
	draft, err := s.states.Begin(ctx, newSnapshotID())
	if err != nil {
		return sandbox.Row{}, nil, nil, err
	}
	needs, err := s.states.Save(ctx, r, draft, save)
	if err != nil {
		return sandbox.Row{}, nil, nil, errors.Join(err, draft.Abort())
	}
	return r, draft, needs, nil
}

// copyAll makes all copies. It makes as many at once as there are processors, and one more because
// one usually waits for the disk.
func (s *Service) copyAll(ctx context.Context, r sandbox.Row, from source, ttl time.Duration, req sandbox.ForkRequest) []sandbox.Fork {
	forks := make([]sandbox.Fork, req.Count)
	p, values, err := s.planner.planCopies(ctx, r)
	if err == nil && req.FilesOnly {
		r.Base, err = s.states.Renewed(ctx, r.TemplateID, r.Base)
	}
	if err != nil {
		for i := range forks {
			forks[i].Err = err
		}
		return forks
	}
	slots := make(chan struct{}, runtime.NumCPU()+1)
	var group sync.WaitGroup
	for i := range forks {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			forks[i].Sandbox, forks[i].Err = s.copyOne(ctx, s.planner.copyRow(r, values, ttl, req.Ephemeral), p, from)
		})
	}
	group.Wait()
	return forks
}

// copyOne makes one copy. After an error nothing of it is left.
func (s *Service) copyOne(ctx context.Context, r sandbox.Row, p *policy.Policy, from source) (sandbox.Sandbox, error) {
	started := time.Now()
	if ctx.Err() != nil {
		return sandbox.Sandbox{}, canceled(context.Cause(ctx))
	}
	spec, config := s.planner.compose(&r, p)
	ctx, release, err := s.operations.beginNew(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer release()
	if err := s.runCreation(ctx, s.newBoot(r, p, spec, config, from)); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.created(ctx, r, started, "copy"), nil
}

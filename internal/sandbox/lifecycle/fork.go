package lifecycle

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// maxCopies is the most that one call copies.
const maxCopies = 100

// Fork copies a running sandbox. Where the audit log does not take the entry of the
// caller's request, nothing of the copies is left.
func (s *Service) Fork(ctx context.Context, who sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	forks, err := s.fork(ctx, who, ref, req)
	if err != nil {
		return forks, err
	}
	lost := auditlog.Commit(ctx)
	if lost == nil {
		return forks, nil
	}
	for _, f := range forks {
		if f.Err == nil {
			lost = errors.Join(lost, s.drop(ctx, f.Sandbox.ID))
		}
	}
	return nil, lost
}

func (s *Service) fork(ctx context.Context, who sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error) {
	if err := s.room.Check(); err != nil {
		return nil, err
	}
	ttl, err := s.checkFork(who, req)
	if err != nil {
		return nil, err
	}
	r, draft, needs, err := s.template(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	forks := s.copyAll(ctx, r, source{dir: draft.Dir(), needs: needs, renew: guest.Copied, again: true}, ttl, req)
	copied := payload.Copied{Asked: len(forks)}
	for _, f := range forks {
		if f.Err == nil {
			copied.Copies = append(copied.Copies, f.Sandbox.ID)
		}
	}
	s.audit.AppendAnyway(ctx, auditlog.Entry(ctx, audit.SandboxCopied, r.ID, copied))
	s.log.Info("sandbox copied", "sandbox", r.ID, "copies", len(copied.Copies), "of", len(forks), "took", time.Since(began))
	s.note(ctx, r.ID, "info", "sandbox copied", nil)
	// What is left of the draft after an error goes with this process.
	if err := draft.Abort(); err != nil {
		s.log.Warn("draft of copies not removed", "sandbox", r.ID, "err", err)
	}
	return forks, nil
}

func (s *Service) checkFork(who sandbox.Principal, req sandbox.ForkRequest) (time.Duration, error) {
	if req.Count < 1 || req.Count > maxCopies {
		return 0, fault.Newf(fault.Invalid, "count_invalid", "count is %d, and must be from 1 to %d", req.Count, maxCopies)
	}
	if err := who.Check(); err != nil {
		return 0, err
	}
	create := sandbox.CreateRequest{Timeout: req.Timeout, Forever: req.Forever, Ephemeral: req.Ephemeral}
	if err := checkLocal(who, create); err != nil {
		return 0, err
	}
	return s.lifetime(who, create)
}

// template writes a running sandbox down once for all its copies.
func (s *Service) template(ctx context.Context, who sandbox.Principal, ref string) (sandbox.Row, sandbox.Draft, *sandbox.Needs, error) {
	ctx, r, release, err := s.act(ctx, who, ref)
	if err != nil {
		return sandbox.Row{}, nil, nil, err
	}
	defer release()
	if r.State != sandbox.Running {
		return sandbox.Row{}, nil, nil, notNow(r)
	}
	save, _, err := s.saver(ctx, r, false)
	if err != nil {
		return sandbox.Row{}, nil, nil, err
	}
	draft, err := s.beginImage(ctx, newSnapshotID())
	if err != nil {
		return sandbox.Row{}, nil, nil, err
	}
	needs, err := s.writeDown(ctx, r, draft, save)
	if err != nil {
		return sandbox.Row{}, nil, nil, errors.Join(err, draft.Abort())
	}
	return r, draft, needs, nil
}

// copyAll makes all copies, as many at once as there are processors to keep
// busy, and one that waits for the disk.
func (s *Service) copyAll(ctx context.Context, r sandbox.Row, from source, ttl time.Duration, req sandbox.ForkRequest) []sandbox.Fork {
	forks := make([]sandbox.Fork, req.Count)
	p, values, err := s.ofCopies(ctx, r)
	if err != nil {
		for i := range forks {
			forks[i].Err = err
		}
		return forks
	}
	seats := make(chan struct{}, runtime.NumCPU()+1)
	var group sync.WaitGroup
	for i := range forks {
		seats <- struct{}{}
		group.Go(func() {
			defer func() { <-seats }()
			forks[i].Sandbox, forks[i].Err = s.copyOne(ctx, s.twin(r, values, ttl, req.Ephemeral), p, from)
		})
	}
	group.Wait()
	return forks
}

// ofCopies is the policy of all copies, and the values that came with the
// sandbox, which each copy has sealed for itself.
func (s *Service) ofCopies(ctx context.Context, r sandbox.Row) (*policy.Policy, map[string]config.Secret, error) {
	p, err := s.compileOn(r.Engine, r.Access)
	if err != nil || r.Access.Own == "" {
		return p, nil, err
	}
	a, err := s.access.Resolve(ctx, r, p)
	if err != nil {
		return nil, nil, err
	}
	values := make(map[string]config.Secret)
	for _, secret := range a.Secrets {
		if strings.HasPrefix(secret.Name, policy.OwnPrefix) {
			values[secret.Name] = config.Secret(secret.Value)
		}
	}
	return p, values, nil
}

// twin is the record of a copy: all that makes a sandbox somebody is its own.
func (s *Service) twin(r sandbox.Row, values map[string]config.Secret, ttl time.Duration, ephemeral bool) sandbox.Row {
	c := r
	c.ID, c.Name, c.Parent, c.State = newID(), "", r.ID, sandbox.Creating
	c.AccessToken, c.ControlToken = ids.NewToken(), ids.NewToken()
	if r.TrafficToken != "" {
		c.TrafficToken = ids.NewToken()
	}
	c.StartedAt = time.Now().UTC().Round(0)
	c.EndAt, c.CreateTimeout = time.Time{}, ttl
	if ttl > 0 {
		c.EndAt = c.StartedAt.Add(ttl)
	}
	c.Ephemeral, c.Process, c.Actor, c.Run = ephemeral, s.self, sandbox.Process{}, 1
	c.Saved, c.Pending, c.Reason, c.Unlinked = sandbox.Saved{}, "", "", false
	c.Metadata, c.Env = maps.Clone(r.Metadata), maps.Clone(r.Env)
	c.Access.Values, c.Access.Own = nil, ""
	if len(values) > 0 {
		c.Access.Values = values
		c.Access = access.NameValues(c.Access)
	}
	return c
}

// copyOne makes one copy. After an error nothing of it is left.
func (s *Service) copyOne(ctx context.Context, r sandbox.Row, p *policy.Policy, from source) (sandbox.Sandbox, error) {
	began := time.Now()
	if ctx.Err() != nil {
		return sandbox.Sandbox{}, canceled(context.Cause(ctx))
	}
	spec, config := s.machine(&r, p)
	ctx, done, err := s.begin(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer done()
	unlock, err := s.locks.acquire(ctx, r.ID)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	if err := s.make(ctx, s.newBoot(r, p, spec, config, from)); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.created(ctx, r, began, "copy"), nil
}

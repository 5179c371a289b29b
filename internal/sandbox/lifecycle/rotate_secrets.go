package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// rotateWait is how long the answer to a rotation waits for sandboxes that are being started or
// changed.
const rotateWait = 30 * time.Second

// RotateSecrets distributes new secret values to the sandboxes of an owner that use them. A sandbox
// that is being started or changed may have read the old values, and gets the new ones afterwards.
// This happens even if the caller goes away, because the old values must stop working.
func (s *Service) RotateSecrets(ctx context.Context, owner string) error {
	if !s.access.Connects() {
		return nil
	}
	detached, cancel := withoutCaller(ctx)
	defer cancel()
	// Every sandbox that read a value before the change has a row by now.
	rows, err := s.store.List(detached, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: liveStates}})
	if err != nil {
		return err
	}
	done, pending := make(chan error, len(rows)), 0
	for _, r := range rows {
		// The pool may be handing a warm sandbox to the owner right now.
		if !r.Access.Linked() || r.Owner != owner && r.State != sandbox.Waiting {
			continue
		}
		if !s.work.start(func() { done <- s.rotate(s.work.ctx, r.ID, owner) }) {
			return shuttingDown()
		}
		pending++
	}
	timer := time.NewTimer(rotateWait)
	defer timer.Stop()
	var errs []error
	for ; pending > 0; pending-- {
		select {
		case err := <-done:
			errs = append(errs, err)
			continue
		case <-ctx.Done():
			errs = append(errs, canceled(context.Cause(ctx)))
		case <-timer.C:
			s.log.Warn("secrets will be updated later in sandboxes that are being changed", "owner", owner, "sandboxes", pending)
			errs = append(errs, fault.Newf(fault.Timeout, "secret_not_everywhere",
				"the change is stored, but %d sandboxes that are being started, saved or changed get it only afterwards", pending).
				WithHint("repeat the request to wait for them"))
		}
		break
	}
	return errors.Join(errs...)
}

// rotate sends the new values of one sandbox to the gateway, once no other operation changes the
// sandbox.
func (s *Service) rotate(ctx context.Context, id, owner string) error {
	for {
		again := false
		err := s.operations.locked(ctx, id, func(ctx context.Context, id string) (err error) {
			again, err = s.rotateLocked(ctx, id, owner)
			return err
		})
		if err != nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return canceled(context.Cause(ctx))
		case <-time.After(awaitEvery):
		}
	}
}

// rotateLocked sends the new values, and reports whether another process is changing the sandbox,
// which its lock does not show. With the lock held, the policy in the row is the one in force, and
// a closed network stays closed. A sandbox that does not run resolves its values when it is
// resumed.
func (s *Service) rotateLocked(ctx context.Context, id, owner string) (again bool, err error) {
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return false, ignoreUnknown(err)
	}
	if r.Owner != owner {
		return false, nil
	}
	if r.State != sandbox.Running {
		return s.process.changedByOther(r), nil
	}
	p, err := s.access.Compile(r.Access)
	if err != nil || len(p.Document().Secrets.Bind) == 0 {
		return false, err
	}
	resolveCtx, cancel := withoutCaller(ctx)
	a := s.attachmentOrNone(resolveCtx, r, p)
	cancel()
	updateCtx, cancel := withoutCaller(ctx)
	defer cancel()
	err = s.access.Update(updateCtx, a)
	if fault.CodeOf(err) == egress.CodeNotAttached {
		return false, nil // the attachment is lost, so the old value cannot be used either
	}
	if err != nil {
		return false, fmt.Errorf("secrets of %s: %w", id, err)
	}
	return false, nil
}

// attachmentOrNone returns the attachment of a running sandbox. If a secret was removed, its value
// must stop working, but the network must stay: the sandbox continues without secrets.
func (s *Service) attachmentOrNone(ctx context.Context, r sandbox.Row, p *policy.Policy) sandbox.Attachment {
	a, err := s.access.Resolve(ctx, r, p)
	if err != nil {
		s.log.Warn("sandbox continues without secrets", "sandbox", r.ID, "err", err)
		s.note(ctx, r.ID, "warn", "runs without secrets, because a secret that its policy binds cannot be found", nil)
		a.Secrets = nil
	}
	return a
}

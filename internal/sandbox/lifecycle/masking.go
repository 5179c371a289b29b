package lifecycle

import (
	"context"
	"fmt"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func maskOptions(p *policy.Policy) sandbox.MaskOptions {
	d := p.Document().Redact
	return sandbox.MaskOptions{Outputs: d.Outputs == nil || *d.Outputs, Patterns: d.Patterns != nil && *d.Patterns}
}

// maskValues are all values that a sandbox's requests carry or have carried.
func maskValues(secrets []egress.Secret) []redact.Value {
	var values []redact.Value
	for _, s := range secrets {
		if s.Plain {
			continue // no secret, and too plain to be masked
		}
		for _, v := range append([]string{s.Value}, s.Old...) {
			values = append(values, redact.Value{Name: s.Name, Data: []byte(v)})
		}
	}
	return values
}

// hide adds to what is masked of a sandbox, before its causeway hears of the
// values. What was masked stays.
func (s *Service) hide(id string, p *policy.Policy, secrets []egress.Secret) error {
	values, options := maskValues(secrets), maskOptions(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.masks[id]
	if m == nil {
		if s.live[id] == nil && s.creating[id] == nil {
			return nil // it has ended
		}
		m = &sandbox.Mask{}
	}
	if err := m.Add(values, options); err != nil {
		return fmt.Errorf("mask of %s: %w", id, err)
	}
	s.masks[id] = m
	return nil
}

// Mask implements Traffic. The values of a sandbox that an earlier process
// made are found again at its first request.
func (s *Service) Mask(ctx context.Context, id string) (*sandbox.Mask, error) {
	if m := s.masked(id); m != nil {
		return m, nil
	}
	if _, ok := s.Live(id); !ok {
		return nil, s.absent(ctx, id, nil)
	}
	unlock, err := s.locks.acquire(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := s.store.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.State != sandbox.Running {
		return nil, notThere(r, nil)
	}
	if err := s.recall(ctx, r); err != nil {
		return nil, s.maskUnavailable(id, err)
	}
	if m := s.masked(id); m != nil {
		return m, nil
	}
	return nil, s.absent(ctx, id, nil)
}

func (s *Service) maskUnavailable(id string, err error) error {
	s.log.Warn("data of a sandbox refused: what to mask is not known", "sandbox", id, "err", err)
	return fault.Wrap(err, fault.Unavailable, "mask_unavailable",
		"what must be masked in this sandbox's data cannot be found out, so that none of it is passed on").
		WithHint("a secret of its policy cannot be read; the server's log says which. Or give the sandbox another policy")
}

func (s *Service) masked(id string) *sandbox.Mask {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.masks[id]
}

// recall finds what to mask of a sandbox, unless it is known. The lock of the
// ID must be held.
func (s *Service) recall(ctx context.Context, r sandbox.Row) error {
	if s.masked(r.ID) != nil {
		return nil
	}
	p, err := s.compile(r.Access)
	if err != nil {
		return err
	}
	if !r.Access.Linked() {
		return s.hide(r.ID, p, nil)
	}
	_, err = s.attachment(ctx, r, p)
	return err
}

// relearn takes over a policy that another process has put in force. While its
// values cannot be found out nothing of the sandbox passes, so that none is
// shown.
func (s *Service) relearn(ctx context.Context, id string) error {
	r, err := s.store.Get(ctx, id)
	if err != nil || r.State != sandbox.Running {
		return ignoreUnknown(err)
	}
	p, err := s.compile(r.Access)
	if err == nil && r.Access.Linked() {
		_, err = s.attachment(ctx, r, p)
	} else if err == nil {
		err = s.hide(id, p, nil)
	}
	if err != nil {
		s.mu.Lock()
		delete(s.masks, id)
		s.mu.Unlock()
		return err
	}
	s.renew(r)
	s.unhide(id, p)
	return nil
}

// unhide follows a policy that masks less, once it is in force. Streams that
// run keep to what they had.
func (s *Service) unhide(id string, p *policy.Policy) {
	m := s.masked(id)
	if m == nil {
		return
	}
	if err := m.Settle(maskOptions(p)); err != nil {
		s.log.Error("mask not changed", "sandbox", id, "err", err)
	}
}

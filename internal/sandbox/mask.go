package sandbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
)

// Mask is what must not be seen in what leaves one sandbox. It changes while
// streams run: who holds one asks for its Redactors with each piece. The nil
// Mask hides nothing.
type Mask struct {
	now atomic.Pointer[redactors]

	mu       sync.Mutex
	values   []redact.Value // newest first
	outputs  bool
	patterns bool
}

// redactors are of what leaves a sandbox, and of what the record is told of it:
// no policy puts a value there.
type redactors struct{ text, bytes, record *redact.Redactor }

// MaskOptions say what a Mask hides beside the values of a sandbox's own.
type MaskOptions struct {
	// Outputs hides values at all.
	Outputs bool
	// Patterns also hides what looks like a known kind of token, in text that
	// programs print.
	Patterns bool
}

// NewMask makes a Mask.
func NewMask(values []redact.Value, o MaskOptions) (*Mask, error) {
	m := &Mask{}
	return m, m.add(values, o)
}

// Text hides values and patterns in what programs print, under their names.
// Nil hides nothing.
func (m *Mask) Text() *redact.Redactor {
	if m == nil {
		return nil
	}
	return m.now.Load().text
}

// Bytes hides values in all else, where lengths must stay. Patterns are not
// looked for there: what only looks like a token may be a part of a file whose
// hash somebody checks. Nil hides nothing.
func (m *Mask) Bytes() *redact.Redactor {
	if m == nil {
		return nil
	}
	return m.now.Load().bytes
}

// Record hides values and patterns in what the record is told, also values that
// the policy shows in outputs. Nil hides nothing.
func (m *Mask) Record() *redact.Redactor {
	if m == nil {
		return nil
	}
	return m.now.Load().record
}

// maxMasked bounds the values of one sandbox, whose tables are built anew
// with each change. Of those that are no longer in use the oldest go first.
const maxMasked = 256

// add hides more than before.
func (m *Mask) add(values []redact.Value, o MaskOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(values)
	for _, old := range m.values {
		known := slices.ContainsFunc(values, func(v redact.Value) bool { return string(v.Data) == string(old.Data) })
		if !known && len(all) < maxMasked {
			all = append(all, old)
		}
	}
	return m.set(all, MaskOptions{Outputs: o.Outputs || m.outputs, Patterns: o.Patterns || m.patterns})
}

// settle hides values and patterns only if the options still say so.
func (m *Mask) settle(o MaskOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(m.values, o)
}

// set is called with m.mu held.
func (m *Mask) set(values []redact.Value, o MaskOptions) error {
	next := &redactors{}
	shown := values
	if !o.Outputs {
		shown = nil
	}
	var err error
	switch {
	case len(shown) > 0:
		if next.text, err = redact.New(shown, redact.Options{Patterns: o.Patterns}); err != nil {
			return err
		}
		if next.bytes, err = redact.New(shown, redact.Options{SameLength: true}); err != nil {
			return err
		}
	case o.Patterns:
		if next.text, err = patternsOnly(); err != nil {
			return err
		}
	}
	next.record = next.text
	if len(shown) < len(values) {
		if next.record, err = redact.New(values, redact.Options{Patterns: o.Patterns}); err != nil {
			return err
		}
	}
	m.values, m.outputs, m.patterns = values, o.Outputs, o.Patterns
	m.now.Store(next)
	return nil
}

// patternsOnly is shared by all sandboxes that have no values.
var patternsOnly = sync.OnceValues(func() (*redact.Redactor, error) {
	return redact.New(nil, redact.Options{Patterns: true})
})

func maskOptions(p *policy.Policy) MaskOptions {
	d := p.Document().Redact
	return MaskOptions{Outputs: d.Outputs == nil || *d.Outputs, Patterns: d.Patterns != nil && *d.Patterns}
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
		m = &Mask{}
	}
	if err := m.add(values, options); err != nil {
		return fmt.Errorf("mask of %s: %w", id, err)
	}
	s.masks[id] = m
	return nil
}

// Mask implements Traffic. The values of a sandbox that an earlier process
// made are found again at its first request.
func (s *Service) Mask(ctx context.Context, id string) (*Mask, error) {
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
	if r.State != Running {
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

func (s *Service) masked(id string) *Mask {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.masks[id]
}

// recall finds what to mask of a sandbox, unless it is known. The lock of the
// ID must be held.
func (s *Service) recall(ctx context.Context, r Record) error {
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
	if err != nil || r.State != Running {
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
	if err := m.settle(maskOptions(p)); err != nil {
		s.log.Error("mask not changed", "sandbox", id, "err", err)
	}
}

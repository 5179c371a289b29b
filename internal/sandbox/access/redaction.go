package access

import (
	"context"
	"fmt"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// redactorOptions returns what the policy requires to be redacted in output.
func redactorOptions(p *policy.Policy) sandbox.RedactorOptions {
	d := p.Document().Redact
	return sandbox.RedactorOptions{Outputs: d.Outputs == nil || *d.Outputs, Patterns: d.Patterns != nil && *d.Patterns}
}

// redactorValues returns all secret values that a sandbox's requests contain or have contained.
func redactorValues(secrets []egress.Secret) []redact.Value {
	var values []redact.Value
	for _, s := range secrets {
		if s.Plain {
			continue // not secret, and too common to be redacted
		}
		for _, v := range append([]string{s.Value}, s.Old...) {
			values = append(values, redact.Value{Name: s.Name, Data: []byte(v)})
		}
	}
	return values
}

// Redact adds values to a sandbox's redactor. It must be called before the gateway gets the values.
// Values that are already redacted stay redacted.
func (s *Service) Redact(id string, p *policy.Policy, secrets []egress.Secret) error {
	added, err := s.addValues(id, redactorValues(secrets), redactorOptions(p))
	if err != nil {
		return fmt.Errorf("redaction of %s: %w", id, err)
	}
	// The redactor is registered only now: if the sandbox ends in between, either its end or this
	// call drops the redactor.
	if _, known := s.deps.Known(id); added && !known {
		s.Forget(id)
	}
	return nil
}

// addValues adds values to the redactor of a sandbox, and reports whether it created the redactor.
func (s *Service) addValues(id string, values []redact.Value, options sandbox.RedactorOptions) (added bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.redactors[id]
	if added = m == nil; added {
		m = &sandbox.Redactor{}
	}
	if err := m.Add(values, options); err != nil {
		return false, err
	}
	s.redactors[id] = m
	return added, nil
}

// Redactor returns the redactor of a sandbox, or nil if there is none.
func (s *Service) Redactor(id string) *sandbox.Redactor {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redactors[id]
}

// Forget drops the redactor of a sandbox that was removed.
func (s *Service) Forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.redactors, id)
}

// Retain preserves the redactor of a sandbox that is about to end, for events that have not been
// read yet. Release drops it.
func (s *Service) Retain(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.redactors[id]; m != nil {
		s.ended[id] = m
	}
}

// Release drops the redactor of an ended sandbox.
func (s *Service) Release(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ended, id)
}

// Recall creates the redactor of a sandbox if there is none. The lock of the ID must be held.
func (s *Service) Recall(ctx context.Context, r sandbox.Row) error {
	if s.Redactor(r.ID) != nil {
		return nil
	}
	p, err := s.Compile(r.Access)
	if err != nil {
		return err
	}
	return s.resolveRedactor(ctx, r, p)
}

// ReloadRedactor adds the values of a policy that another process has put into force. If they cannot
// be resolved, it drops the redactor. All output of the sandbox is then withheld, so that no secret
// appears in it.
func (s *Service) ReloadRedactor(ctx context.Context, r sandbox.Row) (*policy.Policy, error) {
	p, err := s.Compile(r.Access)
	if err == nil {
		err = s.resolveRedactor(ctx, r, p)
	}
	if err != nil {
		s.Forget(r.ID)
	}
	return p, err
}

// resolveRedactor resolves the secrets that the policy binds, and adds their values to the sandbox's
// redactor.
func (s *Service) resolveRedactor(ctx context.Context, r sandbox.Row, p *policy.Policy) error {
	if !r.Access.Linked() {
		return s.Redact(r.ID, p, nil)
	}
	_, err := s.Resolve(ctx, r, p)
	return err
}

// RelaxRedaction applies the redaction options of a new policy, once the policy is in force. They
// may redact less than before. No value is removed. Open streams use the same redactor.
func (s *Service) RelaxRedaction(id string, p *policy.Policy) {
	m := s.Redactor(id)
	if m == nil {
		return
	}
	if err := m.Relax(redactorOptions(p)); err != nil {
		s.deps.Log.Error("redaction not changed", "sandbox", id, "err", err)
	}
}

// Unavailable logs that the secret values of a sandbox cannot be resolved, and returns the error for
// requests for its data.
func (s *Service) Unavailable(id string, err error) error {
	s.deps.Log.Warn("data of a sandbox refused: its secrets cannot be redacted", "sandbox", id, "err", err)
	return fault.Wrap(err, fault.Unavailable, "mask_unavailable",
		"the secrets in this sandbox's data cannot be redacted, so the data is withheld").
		WithHint("a secret of its policy cannot be read; the server's log names it. Restore the secret, or give the sandbox another policy")
}

// EntryRedactor returns the redactor for a sandbox's audit entries. It does not take the lock of
// the ID, because it is called while the sandbox is being ended. If it returns an error, the caller
// must not write text that the sandbox's programs can choose.
func (s *Service) EntryRedactor(ctx context.Context, id string) (func(string) string, error) {
	digest, _ := s.deps.Known(id)
	s.mu.Lock()
	m := s.redactors[id]
	if m == nil {
		m = s.ended[id]
	}
	s.mu.Unlock()
	list := []*redact.Redactor{m.Record()}
	r, err := s.deps.Rows.Get(ctx, id)
	if err != nil && (m == nil || fault.KindOf(err) != fault.NotFound) {
		return nil, err
	}
	// Another process may have created the sandbox, or changed its policy.
	if m == nil || digest != "" && digest != r.PolicyDigest {
		current, err := s.RedactorOf(ctx, r)
		if err != nil {
			return nil, err
		}
		list = append(list, current.Record())
	}
	return func(text string) string {
		for _, redactor := range list {
			text = redactor.String(text)
		}
		return text
	}, nil
}

// RedactorOf returns the redactor of a sandbox from its row, whether the sandbox runs or not.
func (s *Service) RedactorOf(ctx context.Context, r sandbox.Row) (*sandbox.Redactor, error) {
	p, err := s.Compile(r.Access)
	if err != nil {
		return nil, err
	}
	if len(p.Document().Secrets.Bind) == 0 || s.deps.Sealed == nil {
		return sandbox.NewRedactor(nil, redactorOptions(p))
	}
	values, err := s.deps.Sealed.Resolve(ctx, holder(r), p)
	if err != nil {
		return nil, err
	}
	return sandbox.NewRedactor(redactorValues(values), redactorOptions(p))
}

package sandbox

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/crannog/crannog/internal/egress/redact"
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
	return m, m.Add(values, o)
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

// Add hides more than before.
func (m *Mask) Add(values []redact.Value, o MaskOptions) error {
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

// Settle hides values and patterns only if the options still say so.
func (m *Mask) Settle(o MaskOptions) error {
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

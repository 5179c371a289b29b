package sandbox

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/crannog/crannog/internal/egress/redact"
)

// Redactor holds the redactors of one sandbox's output. It changes while streams are open, so
// callers use it again for each piece of a stream. The nil Redactor redacts nothing.
type Redactor struct {
	current atomic.Pointer[redactors]

	mu       sync.Mutex
	values   []redact.Value // newest first
	outputs  bool
	patterns bool
}

// redactors has the redactors of a sandbox's output and of its audit entries. Audit entries never
// show a value, even if the policy shows it in output.
type redactors struct{ text, bytes, record *redact.Redactor }

// RedactorOptions configure what a Redactor redacts beside the values.
type RedactorOptions struct {
	// Outputs redacts values in output.
	Outputs bool
	// Patterns also redacts text that looks like a known kind of token in the output of programs.
	Patterns bool
}

// NewRedactor returns a Redactor.
func NewRedactor(values []redact.Value, o RedactorOptions) (*Redactor, error) {
	m := &Redactor{}
	return m, m.Add(values, o)
}

// Text redacts values and patterns in the output of programs, and inserts the secret's name. Nil
// redacts nothing.
func (m *Redactor) Text() *redact.Redactor {
	if m == nil {
		return nil
	}
	return m.current.Load().text
}

// Bytes redacts values in all other data, whose length must not change. It ignores patterns: text
// that only looks like a token may be a part of a file whose hash is checked. Nil redacts nothing.
func (m *Redactor) Bytes() *redact.Redactor {
	if m == nil {
		return nil
	}
	return m.current.Load().bytes
}

// Record redacts values and patterns in audit entries, including values that the policy shows in
// outputs. Nil redacts nothing.
func (m *Redactor) Record() *redact.Redactor {
	if m == nil {
		return nil
	}
	return m.current.Load().record
}

// maxRedacted limits the number of values of one sandbox, because each change builds their tables
// again. Beyond it, the oldest unused values are dropped.
const maxRedacted = 256

// Add adds values to redact.
func (m *Redactor) Add(values []redact.Value, o RedactorOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(values)
	for _, old := range m.values {
		known := slices.ContainsFunc(values, func(v redact.Value) bool { return string(v.Data) == string(old.Data) })
		if !known && len(all) < maxRedacted {
			all = append(all, old)
		}
	}
	return m.set(all, RedactorOptions{Outputs: o.Outputs || m.outputs, Patterns: o.Patterns || m.patterns})
}

// Relax applies options that redact less than before.
func (m *Redactor) Relax(o RedactorOptions) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(m.values, o)
}

// set replaces the values and options. m.mu must be held.
func (m *Redactor) set(values []redact.Value, o RedactorOptions) error {
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
	m.current.Store(next)
	return nil
}

// patternsOnly is shared by all sandboxes without values.
var patternsOnly = sync.OnceValues(func() (*redact.Redactor, error) {
	return redact.New(nil, redact.Options{Patterns: true})
})

package proxy

import (
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/host/text"
)

// records numbers the entries of one sandbox and passes them on in order.
type records struct {
	sandbox string
	to      egress.Recorder

	mu   sync.Mutex
	seq  uint64
	lost error // of the last entry, if it could not be written
}

// longestField limits the text of a sandbox in an entry.
const longestField = 2 << 10

// add writes an entry with a new number.
func (l *records) add(r egress.Record, g *generation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.retry(g); err != nil {
		return err
	}
	l.seq++
	r.Seq = l.seq
	return l.keep(r, g)
}

// ready reports whether entries can be written.
func (l *records) ready(g *generation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retry(g)
}

// retry writes an entry about a lost entry. Until it succeeds, nothing else is written, and no
// action may happen. mu must be held.
func (l *records) retry(g *generation) error {
	if l.lost == nil {
		return nil
	}
	r := attachmentRecord("an entry before this one was lost")
	r.Sandbox, r.Policy, r.Seq = l.sandbox, g.policy.Digest(), l.seq+1
	if l.lost = l.to.Record(r); l.lost == nil {
		l.seq++
	}
	return l.lost
}

// keep passes on an entry. mu must be held.
func (l *records) keep(r egress.Record, g *generation) error {
	r.Sandbox = l.sandbox
	r.Host, r.Path, r.Error = g.clean(r.Host), g.clean(r.Path), g.clean(r.Error)
	// A refusal repeats text of the request.
	r.Method, r.Reason, r.Fix = g.clean(r.Method), g.clean(r.Reason), g.clean(r.Fix)
	r.Policy = g.policy.Digest()
	l.lost = l.to.Record(r)
	return l.lost
}

// clean makes a text that the sandbox influenced suitable for an entry: without secrets and
// terminal controls, and of limited length.
func (g *generation) clean(text string) string {
	if text == "" {
		return text
	}
	return printable(g.text.String(text), longestField)
}

// printable returns the visible part of a text. It may be limited to ASCII, because paths and names
// outside ASCII are never allowed.
func printable(s string, limit int) string { return text.ASCII(s, limit) }

func attachmentRecord(reason string) egress.Record {
	return egress.Record{Time: time.Now(), Kind: egress.KindLink, Decision: egress.Decision{Effect: egress.Allow, Rule: "link", Reason: reason}}
}

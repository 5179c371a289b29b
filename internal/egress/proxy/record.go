package proxy

import (
	"sync"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/host/text"
)

// records numbers the records of one sandbox and passes them on in order.
type records struct {
	sandbox string
	to      egress.Recorder

	mu   sync.Mutex
	seq  uint64
	lost error // of the last record, if it could not be kept
}

// longestField bounds what of a sandbox's own words a record holds.
const longestField = 2 << 10

// add keeps a record under a new number.
func (l *records) add(r egress.Record, g *generation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mend(g); err != nil {
		return err
	}
	l.seq++
	r.Seq = l.seq
	return l.keep(r, g)
}

// ready reports whether records can be kept.
func (l *records) ready(g *generation) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mend(g)
}

// mend writes that a record was lost. Until that is written, nothing else is,
// and nothing may happen. mu is held.
func (l *records) mend(g *generation) error {
	if l.lost == nil {
		return nil
	}
	r := linkRecord("a record before this one was lost")
	r.Sandbox, r.Policy, r.Seq = l.sandbox, g.policy.Digest(), l.seq+1
	if l.lost = l.to.Record(r); l.lost == nil {
		l.seq++
	}
	return l.lost
}

// keep passes a record on. mu is held.
func (l *records) keep(r egress.Record, g *generation) error {
	r.Sandbox = l.sandbox
	r.Host, r.Path, r.Error = g.clean(r.Host), g.clean(r.Path), g.clean(r.Error)
	// What a request named is told again where it says why not.
	r.Method, r.Reason, r.Fix = g.clean(r.Method), g.clean(r.Reason), g.clean(r.Fix)
	r.Policy = g.policy.Digest()
	l.lost = l.to.Record(r)
	return l.lost
}

// clean makes a text that the sandbox had a hand in fit for a record: without
// secrets, without what moves a terminal's cursor, and bounded.
func (g *generation) clean(text string) string {
	if text == "" {
		return text
	}
	return printable(g.text.String(text), longestField)
}

// printable is what shows of a text: a path outside ASCII is never judged, and names are ASCII.
func printable(s string, limit int) string { return text.ASCII(s, limit) }

func linkRecord(reason string) egress.Record {
	return egress.Record{Time: time.Now(), Kind: egress.KindLink, Decision: egress.Decision{Effect: egress.Allow, Rule: "link", Reason: reason}}
}

package auditlog

import (
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
)

// Limits of the entries about refused requests. Without them, a client without a key could fill the
// disk.
const (
	refusedEvery = time.Minute
	maxRefused   = 60
)

// refused counts the requests that were refused in one minute.
type refused struct {
	since time.Time
	count int64
}

// over begins a new minute and returns the number of refused requests without an entry in the last
// one.
func (r *refused) over(now time.Time) int64 {
	if now.Sub(r.since) < refusedEvery {
		return 0
	}
	over := max(r.count-maxRefused, 0)
	*r = refused{since: now}
	return over
}

// refuse writes an entry about a refused request, or counts it.
func (l *Log) refuse(d audit.Draft) {
	now := time.Now()
	l.mu.Lock()
	over := l.refused.over(now)
	l.refused.count++
	full := l.refused.count > maxRefused
	l.mu.Unlock()
	l.reportOver(over)
	if full {
		return
	}
	if err := l.recorder.Note(d); err != nil {
		l.mu.Lock()
		l.lost++
		l.mu.Unlock()
	}
}

// reportOver writes an entry with the number of refused requests that have no entry of their own.
func (l *Log) reportOver(over int64) {
	if over == 0 {
		return
	}
	d := audit.Draft{Kind: audit.Action, Actor: Server, Data: payload.Action{Do: "refused", Outcome: "too_many", Count: over}}
	if err := l.recorder.Note(d); err != nil {
		l.mu.Lock()
		l.refused.count += over // reported with the next one
		l.lost++
		l.mu.Unlock()
	}
}

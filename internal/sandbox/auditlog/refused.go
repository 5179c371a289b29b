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

// nextMinute begins a new minute if the last one has passed. It returns the number of refused
// requests of that minute that have no entry.
func (r *refused) nextMinute(now time.Time) int64 {
	if now.Sub(r.since) < refusedEvery {
		return 0
	}
	omitted := max(r.count-maxRefused, 0)
	*r = refused{since: now}
	return omitted
}

// noteRefused writes an entry about a refused request, or counts it.
func (l *Log) noteRefused(d audit.Draft) {
	now := time.Now()
	l.mu.Lock()
	omitted := l.refused.nextMinute(now)
	l.refused.count++
	full := l.refused.count > maxRefused
	l.mu.Unlock()
	l.reportOmitted(omitted)
	if full {
		return
	}
	if err := l.recorder.Note(d); err != nil {
		l.mu.Lock()
		l.lost++
		l.mu.Unlock()
	}
}

// reportOmitted writes an entry with the number of refused requests that have no entry of their
// own.
func (l *Log) reportOmitted(omitted int64) {
	if omitted == 0 {
		return
	}
	d := audit.Draft{Kind: audit.Action, Actor: Server, Data: payload.Action{Do: "refused", Outcome: "too_many", Count: omitted}}
	if err := l.recorder.Note(d); err != nil {
		l.mu.Lock()
		l.refused.count += omitted // reported with the next one
		l.lost++
		l.mu.Unlock()
	}
}

package live

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/ingest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/frontend/entrydata"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

const reasonOOM = string(engine.ReasonOOM)

// window is how long denials count as new, in seconds.
const window = 60

// summary contains facts about one sandbox from the audit log, as far as it was read.
type summary struct {
	last    *Command
	n       int // number of the command in last
	denied  int
	refused [window]count // by second
	since   time.Time     // before it, denials come from readiness probes
	before  int           // number of denials when the sandbox was paused
	oom     bool
	sent    [window]count // bytes by second
}

// count is a number for one second.
type count struct {
	at int64 // Unix time
	n  int64
}

func add(ring *[window]count, at time.Time, n int64) {
	slot := &ring[uint64(at.Unix())%window]
	switch {
	case slot.at == at.Unix():
		slot.n += n
	case slot.at < at.Unix():
		*slot = count{at.Unix(), n}
	}
}

func sum(ring *[window]count, now time.Time, seconds int64) int64 {
	var n int64
	for _, c := range ring {
		if age := now.Unix() - c.at; age >= 0 && age < seconds {
			n += c.n
		}
	}
	return n
}

// deniedSince returns the number of denials in the last minute.
func (f *summary) deniedSince(now time.Time) int {
	if f == nil {
		return 0
	}
	return int(sum(&f.refused, now, window))
}

// egressSpan is the time over which bytes are averaged, in seconds. The gateway counts the bytes of
// a request only when it has ended.
const egressSpan = 5

// egress returns the bytes per second that left the sandbox.
func (f *summary) egress(now time.Time) float64 {
	if f == nil {
		return 0
	}
	return float64(sum(&f.sent, now, egressSpan)) / egressSpan
}

// summaryKinds are the kinds of entries from which summaries are computed.
var summaryKinds = []audit.Kind{
	audit.CommandStarted, audit.CommandEnded, audit.Flow, audit.LimitHit,
	audit.SandboxStarted, audit.SandboxEnded, audit.SandboxPaused, audit.SandboxResumed, audit.SandboxReplaced,
}

// dropProbeDenials drops denials of readiness probes, which need no attention.
func (f *summary) dropProbeDenials(at time.Time) {
	f.denied, f.refused, f.since, f.oom = f.before, [window]count{}, at, false
}

// update updates the table from an entry. A sandbox may have chosen part of the data, so data that
// cannot be decoded is ignored.
func (f *rowTable) update(e audit.Entry) {
	if e.Sandbox == "" {
		return
	}
	switch e.Kind {
	case audit.CommandStarted:
		if d, ok := entrydata.Of(e.Kind, e.Data).(observe.Started); ok && d.How != observe.HowConnect {
			f.of(e.Sandbox).started(d, e.Time)
		}
	case audit.CommandEnded:
		d, ok := entrydata.Of(e.Kind, e.Data).(observe.Ended)
		if !ok {
			return
		}
		f.of(e.Sandbox).ended(d)
	case audit.Flow:
		d, ok := entrydata.Of(e.Kind, e.Data).(egress.Record)
		if !ok || d.Begins {
			return
		}
		f.of(e.Sandbox).flowed(d, e.Time)
	case audit.LimitHit:
		if d, ok := entrydata.Of(e.Kind, e.Data).(ingest.Limit); ok && d.Limit == string(engine.LimitMemory) {
			f.of(e.Sandbox).oom = true
		}
	case audit.SandboxEnded:
		if d, ok := entrydata.Of(e.Kind, e.Data).(payload.Ended); ok && d.Reason == reasonOOM {
			f.of(e.Sandbox).oom = true
		}
		f.stale = true
	case audit.SandboxStarted, audit.SandboxResumed:
		f.of(e.Sandbox).dropProbeDenials(e.Time)
		f.stale = true
	case audit.SandboxPaused:
		k := f.of(e.Sandbox)
		k.before = k.denied
		f.stale = true
	case audit.SandboxReplaced:
		k := f.of(e.Sandbox)
		k.before = k.denied
		k.dropProbeDenials(e.Time)
		f.stale = true
	case audit.Exec, audit.Exit, audit.File, audit.Gap:
		return // events inside change no row
	default:
		f.stale = true // a caller's action may change rows
		return
	}
	f.markChanged(e.Sandbox)
}

// started records the command that began last.
func (f *summary) started(d observe.Started, at time.Time) {
	argv := d.Argv
	if d.How == observe.HowCell {
		argv = []string{d.Code}
	}
	f.last, f.n = &Command{Text: commandText(argv), At: at}, d.N
}

// ended records how a command ended.
func (f *summary) ended(d observe.Ended) {
	if f.last != nil && f.n == d.N {
		ended := *f.last
		ended.ExitCode = d.Exit
		f.last = &ended
	}
	f.oom = f.oom || d.Hit == reasonOOM
}

// flowed counts bytes that left the sandbox, and its denials.
func (f *summary) flowed(d egress.Record, at time.Time) {
	if d.Effect == egress.Deny && !d.Probe && !d.Time.Before(f.since) {
		f.denied++
		add(&f.refused, at, 1)
	}
	if d.Sent > 0 {
		add(&f.sent, at, d.Sent)
	}
}

// of returns the facts of a sandbox.
func (f *rowTable) of(id string) *summary {
	k := f.facts[id]
	if k == nil {
		k = &summary{}
		f.facts[id] = k
	}
	return k
}

const (
	// maxReadBack bounds the entries that are read at the start to fill the rows.
	maxReadBack = 4000
	// maxLag is the number of entries that may be written while no page is connected, before the
	// facts are read again.
	maxLag = 20_000
)

// readBack finds the end of the audit log, and reads the last entries about the fleet. It does
// nothing if it ran a short while ago.
func (l *Live) readBack(ctx context.Context) error {
	newest := int64(-1)
	err := l.deps.Audit.Read(ctx, audit.Filter{Newest: true, Limit: 1}, false, func(e audit.Entry) error {
		newest = e.Seq
		return nil
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	near := l.lines.known && newest >= l.lines.newest() && newest-l.lines.newest() < maxLag
	l.mu.Unlock()
	if near {
		return nil
	}
	var old []audit.Entry
	err = l.deps.Audit.Read(ctx, audit.Filter{Kinds: summaryKinds, Before: newest + 1, Newest: true, Limit: maxReadBack}, false, func(e audit.Entry) error {
		old = append(old, e)
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.rows.facts)
	for _, e := range old {
		l.rows.update(e)
	}
	l.lines.skip(newest + 1)
	if !l.lines.known {
		l.lines.known = true
		for _, s := range l.streams {
			if !s.resumed {
				s.entry = newest // a new stream gets only later entries
			}
		}
		l.wake()
	}
	return err
}

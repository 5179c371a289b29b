package live

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

const (
	// refreshEvery is the interval at which the rows are read even without a known change.
	refreshEvery = 10 * time.Second
	// settleTime is how long after an entry the rows are read again, because an entry may be
	// written before its row.
	settleTime = 2 * time.Second
	// endedRowLifetime is how long an ended sandbox is shown.
	endedRowLifetime = 10 * time.Minute
	// maxEnded bounds the ended sandboxes that are shown.
	maxEnded = 200
	// maxGone bounds the list of removed rows. A stream that is further behind gets all rows.
	maxGone = 4096
	// page is the number of rows that the service lists at once.
	page = 100
)

// rowTable contains the rows that streams show.
type rowTable struct {
	facts   map[string]*summary
	changed map[string]bool // rows that may have changed
	stale   bool            // the list may have changed

	version int64 // of the newest row; 0 before the first list
	rows    map[string]*row
	gone    []endedRow // removed rows, by version
	dropped int64      // versions up to this one are not in gone
	listed  time.Time
	active  time.Time // when stale was set last

	from, to int64 // versions of frame
	frame    []byte
}

type row struct {
	sb      sandbox.Sandbox
	data    []byte
	version int64
	ended   time.Time // when the sandbox ended, or zero
}

type endedRow struct {
	id      string
	version int64
}

func newRowTable() *rowTable {
	return &rowTable{facts: map[string]*summary{}, changed: map[string]bool{}, rows: map[string]*row{}, stale: true}
}

func (f *rowTable) markChanged(id string) { f.changed[id] = true }

// liveStates are the states of sandboxes that have not ended.
var liveStates = []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming, sandbox.Stopping}

// refresh updates the rows, at most once a second.
func (l *Live) refresh(ctx context.Context) {
	l.mu.Lock()
	now, before := time.Now(), l.rows.version
	wanted := l.rows.needsList(now)
	l.mu.Unlock()
	if wanted {
		list, ended, err := l.list(ctx)
		if err != nil {
			if ctx.Err() == nil {
				l.deps.Log.Warn("console: sandboxes cannot be listed", "err", err)
			}
			return
		}
		l.mu.Lock()
		l.rows.replace(list, ended, now)
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows.rebuild(l.approvals.pendingCount, wanted, now)
	if l.rows.version == before {
		return
	}
	for _, s := range l.streams {
		if s.topics.fleet {
			s.notify()
		}
	}
}

// needsList reports whether the list of sandboxes has to be read again.
func (f *rowTable) needsList(now time.Time) bool {
	if f.stale {
		f.stale, f.active = false, now
	}
	if f.version == 0 || now.Sub(f.active) < settleTime || now.Sub(f.listed) >= refreshEvery {
		return true
	}
	for _, r := range f.rows {
		switch r.sb.State {
		case sandbox.Creating, sandbox.Pausing, sandbox.Resuming, sandbox.Stopping:
			return true // such a state is temporary
		case sandbox.Running, sandbox.Paused, sandbox.Stopped, sandbox.Waiting:
		}
	}
	return false
}

// list reads all sandboxes that have not ended, and those that ended recently.
func (l *Live) list(ctx context.Context) (all, ended []sandbox.Sandbox, err error) {
	f := sandbox.Filter{States: liveStates, Ascending: true, Limit: page}
	for {
		p, err := l.deps.Sandboxes.List(ctx, everyone, f)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, p.Sandboxes...)
		if !p.More || len(p.Sandboxes) == 0 {
			break
		}
		last := p.Sandboxes[len(p.Sandboxes)-1]
		f.AfterTime, f.AfterID = last.StartedAt, last.ID
	}
	l.mu.Lock()
	first := l.rows.version == 0
	gone := l.rows.missing(all)
	l.mu.Unlock()
	if first {
		p, err := l.deps.Sandboxes.List(ctx, everyone, sandbox.Filter{States: []sandbox.State{sandbox.Stopped}, Limit: page})
		return all, p.Sandboxes, err
	}
	for _, id := range gone {
		sb, err := l.deps.Sandboxes.Get(ctx, everyone, id)
		switch {
		case fault.KindOf(err) == fault.NotFound && err != nil:
		case err != nil:
			return nil, nil, err
		case sb.ID == id:
			ended = append(ended, sb)
		}
	}
	return all, ended, nil
}

// missing returns rows of live sandboxes that a list does not contain.
func (f *rowTable) missing(list []sandbox.Sandbox) []string {
	there := make(map[string]bool, len(list))
	for _, sb := range list {
		there[sb.ID] = true
	}
	var out []string
	for id, r := range f.rows {
		if r.ended.IsZero() && !there[id] {
			out = append(out, id)
		}
	}
	return out
}

// replace updates the rows from a new list. Rows of sandboxes that are in neither part of the list
// are removed, unless they were already shown as ended.
func (f *rowTable) replace(list, ended []sandbox.Sandbox, now time.Time) {
	there := make(map[string]bool, len(list)+len(ended))
	put := func(sb sandbox.Sandbox, since time.Time) {
		there[sb.ID] = true
		r := f.rows[sb.ID]
		if r == nil {
			r = &row{}
			f.rows[sb.ID] = r
		}
		r.sb, r.ended = sb, since
	}
	for _, sb := range list {
		put(sb, time.Time{})
	}
	for _, sb := range ended {
		since := sb.StoppedAt
		if since.IsZero() {
			since = now
		}
		put(sb, since)
	}
	var old []*row
	for id, r := range f.rows {
		switch {
		case r.ended.IsZero() && !there[id], !r.ended.IsZero() && now.Sub(r.ended) > endedRowLifetime:
			f.remove(id)
		case !r.ended.IsZero():
			old = append(old, r)
		}
	}
	if len(old) > maxEnded {
		slices.SortFunc(old, func(a, b *row) int { return a.ended.Compare(b.ended) })
		for _, r := range old[:len(old)-maxEnded] {
			f.remove(r.sb.ID)
		}
	}
	for id := range f.facts {
		// A sandbox without a row gets one with the next list, unless its row is never written.
		if f.rows[id] == nil && !f.changed[id] {
			delete(f.facts, id)
		}
	}
	f.listed = now
}

func (f *rowTable) remove(id string) {
	if f.rows[id].version > 0 {
		f.version++
		f.gone = append(f.gone, endedRow{id, f.version})
	}
	delete(f.rows, id)
	if over := len(f.gone) - maxGone; over > 0 {
		f.dropped = f.gone[over-1].version
		f.gone = slices.Delete(f.gone, 0, over)
	}
}

// rebuild encodes the rows that may have changed, or all rows if all is set.
func (f *rowTable) rebuild(pending map[string]int, all bool, now time.Time) {
	next := f.version + 1
	build := func(id string, r *row) {
		data := rowOf(r.sb, f.facts[id], pending[id], now).marshal()
		if !bytes.Equal(data, r.data) {
			r.data, r.version = data, next
			f.version = next
		}
	}
	if all {
		for id, r := range f.rows {
			build(id, r)
		}
		f.version = max(f.version, 1)
	} else {
		for id := range f.changed {
			if r := f.rows[id]; r != nil {
				build(id, r)
			}
		}
	}
	for id := range f.changed {
		// A denial counts as new for a minute, during which its sandbox's row is checked.
		if f.facts[id].deniedSince(now) == 0 {
			delete(f.changed, id)
		}
	}
}

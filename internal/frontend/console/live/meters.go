package live

import (
	"context"
	"encoding/json"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

const (
	// maxMeasured bounds the sandboxes that are measured for all streams.
	maxMeasured = 1000
	// measureBudget bounds the time for measurements within each second. If engines are slow, the
	// remaining sandboxes are measured in the next second.
	measureBudget = 400 * time.Millisecond
	// measureTimeout bounds measuring one sandbox.
	measureTimeout = 250 * time.Millisecond
)

// Metric is the resource use of one sandbox.
type Metric struct {
	ID string `json:"id"`
	// CPU is the number of processors in use: 1.5 is one and a half.
	CPU         float64 `json:"cpu"`
	Memory      int64   `json:"memory"` // bytes
	MemoryLimit int64   `json:"memory_limit"`
	// Egress is the bytes per second that left the sandbox, averaged over some seconds. The bytes
	// of a request are counted when the request has ended.
	Egress float64 `json:"egress"`
	Denied int     `json:"denied"` // within the last minute
}

// meters are the last measurements.
type meters struct {
	tick  int64
	at    time.Time
	last  map[string]*reading
	start int // where the next round begins
}

type reading struct {
	usage engine.Usage
	row   []byte // nil before there is a rate
	tick  int64
}

func newMeters() *meters { return &meters{last: map[string]*reading{}} }

// measure reads the resource use of the watched sandboxes.
func (l *Live) measure(ctx context.Context) {
	ids := l.watched()
	if len(ids) == 0 || l.deps.Meter == nil {
		return
	}
	started := time.Now()
	usages := make(map[string]engine.Usage, len(ids))
	done := 0
	for i := range ids {
		id := ids[(l.meters.start+i)%len(ids)]
		one, cancel := context.WithTimeout(ctx, measureTimeout)
		u, err := l.deps.Meter.Usage(one, id)
		cancel()
		if err == nil {
			usages[id] = u // an ended sandbox has no measurements
		}
		if done++; ctx.Err() != nil || time.Since(started) > measureBudget {
			break
		}
	}
	l.meters.start = (l.meters.start + done) % len(ids)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.meters.add(usages, l.rows, time.Now())
	for _, s := range l.streams {
		if len(s.topics.watch) > 0 {
			s.notify()
		}
	}
}

// watched returns the running sandboxes that any stream watches. Sandboxes that the fleet does not
// contain are ignored, whatever a page asks for.
func (l *Live) watched() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]bool{}
	var out []string
	for _, s := range l.streams {
		for _, id := range s.topics.watch {
			r := l.rows.rows[id]
			if r != nil && r.sb.State == sandbox.Running && !seen[id] && len(out) < maxMeasured {
				seen[id] = true
				out = append(out, id)
			}
		}
	}
	for id := range l.meters.last {
		if !seen[id] {
			delete(l.meters.last, id)
		}
	}
	return out
}

// add computes rates from measurements.
func (m *meters) add(usages map[string]engine.Usage, f *rowTable, now time.Time) {
	m.tick++
	m.at = now
	for id, u := range usages {
		before := m.last[id]
		next := &reading{usage: u}
		m.last[id] = next
		r := f.rows[id]
		if before == nil || r == nil {
			continue
		}
		wall := u.At.Sub(before.usage.At)
		if wall <= 0 {
			m.last[id] = before // two measurements of the same moment give no rate
			continue
		}
		row := Metric{
			ID: id, CPU: max(0, float64(u.CPUTime-before.usage.CPUTime)/float64(wall)),
			Memory: u.MemoryBytes, MemoryLimit: r.sb.Limits.MemoryBytes,
			Egress: f.facts[id].egress(now), Denied: f.facts[id].deniedSince(now),
		}
		row.CPU = float64(int64(row.CPU*10_000)) / 10_000 // further digits are not shown
		next.row, _ = json.Marshal(row)                   // numbers and an ID always marshal
		next.tick = m.tick
	}
}

// send writes measurements that a stream has not received.
func (m *meters) send(s *stream, out *frames) {
	if s.meter == m.tick {
		return
	}
	rows := make([]json.RawMessage, 0, len(s.topics.watch))
	for _, id := range s.topics.watch {
		if r := m.last[id]; r != nil && r.row != nil && r.tick > s.meter {
			rows = append(rows, r.row)
		}
	}
	s.meter = m.tick
	if len(rows) == 0 {
		return
	}
	out.event("metrics", struct {
		At   time.Time         `json:"at"`
		Rows []json.RawMessage `json:"rows"`
	}{m.at.UTC(), rows})
}

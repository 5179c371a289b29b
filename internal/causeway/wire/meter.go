package wire

import (
	"sync"
	"time"
)

// meters bound what a sandbox makes us do per second.
type meters struct {
	connects *meter // attempts to connect
	queries  *meter // names
	refusals *meter // answers to UDP and to segments that go nowhere
	reports  *meter // calls of Handler.Dropped
	junk     *meter // packets that go nowhere, before reading waits
}

func newMeters(o Options) meters {
	return meters{
		connects: newMeter(o.ConnectsPerSecond), queries: newMeter(o.NamesPerSecond),
		refusals: newMeter(100), reports: newMeter(20), junk: newMeter(5000),
	}
}

// meter lets a number of events through per second, and twice that number at
// once after a quiet time.
type meter struct {
	perSecond float64

	mu   sync.Mutex
	have float64
	last time.Time
}

func newMeter(perSecond int) *meter {
	return &meter{perSecond: float64(perSecond), have: 2 * float64(perSecond), last: time.Now()}
}

// take reports whether one more event may pass.
func (m *meter) take() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.have = min(2*m.perSecond, m.have+now.Sub(m.last).Seconds()*m.perSecond)
	m.last = now
	if m.have < 1 {
		return false
	}
	m.have--
	return true
}

// wait returns when a hundredth of a second's events may pass, or when stop
// is closed.
func (m *meter) wait(stop <-chan struct{}) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}

package main

import (
	"sync"
	"time"

	"github.com/crannog/crannog/internal/enginebench"
)

// series has the scores of one contender, in the order of the rounds.
type series []float64

// percentile returns the value below which the share p of the values lies, and 0 if there is none.
func (s series) percentile(p float64) float64 { return enginebench.Percentile(s, p) }

func (s series) p50() float64 { return s.percentile(0.50) }
func (s series) p95() float64 { return s.percentile(0.95) }

func (s series) p99() *float64 {
	v := s.percentile(0.99)
	return &v
}

// scores collects series by name, in the order in which the names were first added. It is safe for
// concurrent use.
type scores struct {
	mu    sync.Mutex
	order []string
	by    map[string]series
}

func newScores() *scores { return &scores{by: map[string]series{}} }

func (s *scores) add(name string, value float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.by[name]; !known {
		s.order = append(s.order, name)
	}
	s.by[name] = append(s.by[name], value)
}

func (s *scores) addTime(name string, d time.Duration) { s.add(name, millis(d)) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rate returns megabytes per second, with megabytes of a million bytes.
func rate(bytes int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(bytes) / 1e6 / d.Seconds()
}

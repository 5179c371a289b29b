package demand

import "time"

// Memory is a machine's memory at one time.
type Memory struct {
	Total, Available int64
	// Stalled is the percentage of the last ten seconds in which some task waited for memory; zero
	// where the kernel does not report it.
	Stalled float64
}

const (
	// sharePercent is the percentage of the available memory that is used unless an amount is
	// configured.
	sharePercent = 10
	// stalledPercent is the percentage of time stalled for memory that counts as pressure, and
	// availablePercent the percentage of all memory that must stay available.
	stalledPercent   = 10
	availablePercent = 8
	// reliefTime is how long pressure must have been absent before the budget rises again.
	reliefTime = 30 * time.Second
)

// Gauge determines how much memory warm sandboxes may use. The zero value is ready for use.
type Gauge struct {
	// Fixed is the operator's limit. Zero means a share of the available memory.
	Fixed int64

	lastPressure time.Time
}

// Budget returns how much memory all warm sandboxes together may use. used is what they use now.
// Under pressure, and for a while after, the budget is zero.
func (g *Gauge) Budget(m Memory, used int64, at time.Time) int64 {
	if m.Stalled >= stalledPercent || m.Available < m.Total/100*availablePercent {
		g.lastPressure = at
	}
	if !g.lastPressure.IsZero() && at.Sub(g.lastPressure) < reliefTime {
		return 0
	}
	// The available memory does not include the memory of the warm sandboxes.
	free := m.Available + used
	if g.Fixed > 0 {
		// Otherwise less than half would remain for the sandboxes that callers request.
		return min(g.Fixed, free/2)
	}
	return free / 100 * sharePercent
}

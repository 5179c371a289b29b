package demand

import "time"

// Memory is what a machine has at one time.
type Memory struct {
	Total, Available int64
	// Stalled is the share of the last ten seconds, in percent, in which
	// something waited for memory; zero where the kernel does not tell.
	Stalled float64
}

const (
	// share is the percentage of the available memory that is used where no amount is
	// configured.
	share = 10
	// stalled is how much waiting for memory is pressure, and scarce how much
	// of all memory must stay available, in percent.
	stalled = 10
	scarce  = 8
	// calm is how long there must have been no pressure.
	calm = 30 * time.Second
)

// Gauge says how much memory may go to what waits. The zero value is ready.
type Gauge struct {
	// Fixed is an operator's bound; zero is a share of what is available.
	Fixed int64

	pressed time.Time
}

// Budget is what all that waits together may use, of which it uses used now.
// Under pressure, and for a while after, it is nothing.
func (g *Gauge) Budget(m Memory, used int64, at time.Time) int64 {
	if m.Stalled >= stalled || m.Available < m.Total/100*scarce {
		g.pressed = at
	}
	if !g.pressed.IsZero() && at.Sub(g.pressed) < calm {
		return 0
	}
	// What waits has taken its memory from what was available.
	free := m.Available + used
	if g.Fixed > 0 {
		// More than half would be missed by those for whom it is meant.
		return min(g.Fixed, free/2)
	}
	return free / 100 * share
}

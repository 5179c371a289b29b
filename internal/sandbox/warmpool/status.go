package warmpool

import (
	"cmp"
	"slices"
	"time"
)

// reportEvery is how often the state of the warm pool is logged.
const reportEvery = 10 * time.Minute

// Status is what waits for callers at one time.
type Status struct {
	// Budget is the memory that all that waits may use now, Used what it is
	// taken to use.
	Budget, Used int64
	Kinds        []KindStatus
}

// KindStatus is one kind of waiting sandboxes.
type KindStatus struct {
	Name    string // the template, and whether it has a link
	Waiting int
	Wanted  int
	// Claimed were handed to callers; Missed are creations that found none.
	Claimed, Missed int64
	// Bytes is what one uses.
	Bytes int64
}

// Status describes the sandboxes that wait, and reports whether any are to.
func (p *Pool) Status() (Status, bool) {
	if p == nil {
		return Status{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	status := Status{Budget: p.budget, Used: p.restores.bytes()}
	wanted := make(map[string]int)
	for _, share := range p.wants(time.Now()) {
		wanted[share.Kind] = share.Count
	}
	for key, k := range p.kinds {
		status.Used += int64(len(k.ready)) * k.price()
		status.Kinds = append(status.Kinds, KindStatus{
			Name: k.name, Waiting: len(k.ready), Wanted: wanted[key], Claimed: k.claimed, Missed: k.missed, Bytes: k.price(),
		})
	}
	slices.SortFunc(status.Kinds, func(a, b KindStatus) int {
		return cmp.Or(cmp.Compare(b.Claimed+b.Missed, a.Claimed+a.Missed), cmp.Compare(a.Name, b.Name))
	})
	return status, true
}

// report tells an operator now and then how well the pool does, if anything
// was asked of it.
func (p *Pool) report(now time.Time) {
	p.mu.Lock()
	due := now.Sub(p.reported) >= reportEvery
	if due {
		p.reported = now
	}
	p.mu.Unlock()
	if !due {
		return
	}
	status, _ := p.Status()
	var claimed, missed int64
	waiting := 0
	for _, k := range status.Kinds {
		claimed, missed, waiting = claimed+k.Claimed, missed+k.Missed, waiting+k.Waiting
	}
	if asked := claimed + missed; asked != p.logged {
		p.logged = asked
		p.deps.Log.Info("sandboxes wait", "waiting", waiting, "bytes", status.Used, "budget", status.Budget, "claimed", claimed, "missed", missed)
	}
}

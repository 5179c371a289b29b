package warmpool

import (
	"cmp"
	"slices"
	"time"
)

// reportEvery is how often the state of the warm pool is logged.
const reportEvery = 10 * time.Minute

// Status describes the pool at one moment.
type Status struct {
	// Budget is the memory that all warm sandboxes may use now, and Used their assumed use.
	Budget, Used int64
	Kinds        []KindStatus
}

// KindStatus describes one kind of warm sandboxes.
type KindStatus struct {
	Name    string // the template, and whether it has a network
	Waiting int
	Wanted  int
	// Claimed is how many were handed to callers, and Missed how many requests found none.
	Claimed, Missed int64
	// Bytes is the memory of one sandbox.
	Bytes int64
}

// Status describes the warm sandboxes, and reports whether the pool is in use.
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
			Name: k.name, Waiting: len(k.ready), Wanted: wanted[key], Claimed: k.acquired, Missed: k.missed, Bytes: k.price(),
		})
	}
	slices.SortFunc(status.Kinds, func(a, b KindStatus) int {
		return cmp.Or(cmp.Compare(b.Claimed+b.Missed, a.Claimed+a.Missed), cmp.Compare(a.Name, b.Name))
	})
	return status, true
}

// report logs the numbers of served and missed requests at intervals, if there were requests.
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
	var acquired, missed int64
	waiting := 0
	for _, k := range status.Kinds {
		acquired, missed, waiting = acquired+k.Claimed, missed+k.Missed, waiting+k.Waiting
	}
	if total := acquired + missed; total != p.logged {
		p.logged = total
		p.deps.Log.Info("sandboxes wait", "waiting", waiting, "bytes", status.Used, "budget", status.Budget, "claimed", acquired, "missed", missed)
	}
}

package cgroup

import (
	"errors"
	"io/fs"
	"sync"
	"time"
)

const (
	// balanceEvery is the interval at which the processor time of groups is compared.
	balanceEvery = time.Second
	// minBusy is the share of one processor below which a group counts as idle. minBusyLowered is
	// the same for a group with lowered weight. Both are small, because busy groups get little on a
	// busy host.
	minBusy, minBusyLowered = 0.02, 0.005
	// lowerAbove and restoreBelow are multiples of the average use of busy groups. Above lowerAbove
	// a group gets a lower weight, and below restoreBelow its normal weight again. They differ so
	// that a group does not switch every second.
	lowerAbove, restoreBelow = 0.5, 0.25
)

// Balance lowers the weight of control groups that use the processors all the time, in favour of
// groups that use them occasionally. The kernel gives groups of equal weight equal turns when
// processors are short. A command in a mostly idle sandbox would then wait for the turns of all
// busy sandboxes each time that one of its processes wakes up. A group that used about as much as
// the other busy ones therefore gets a lower weight for the next second. Busy groups still share
// equally among themselves. The zero value has no groups.
type Balance struct {
	mu      sync.Mutex
	groups  map[string]*groupState // by the file that holds the processor time
	running bool
	stopped bool
	stop    chan struct{}
}

// groupState is the state of one group in the comparison.
type groupState struct {
	group   *Group
	used    time.Duration // processor time at the last comparison
	at      time.Time
	lowered bool
}

// Add includes a group in the comparison until the group is removed. A nil group has no weight, and
// Add ignores it.
func (b *Balance) Add(g *Group) {
	key := g.usageFile()
	if key == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return
	}
	if b.groups == nil {
		b.groups, b.stop = map[string]*groupState{}, make(chan struct{})
	}
	if b.groups[key] == nil {
		// An earlier server process may have lowered its weight.
		b.groups[key] = &groupState{group: g, lowered: g.yields()}
	}
	if len(b.groups) > 1 && !b.running {
		b.running = true
		go b.run(b.stop)
	}
}

// Stop ends the comparison for good. Weights that are lowered stay so.
func (b *Balance) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.groups != nil {
		close(b.stop)
		b.groups = nil
	}
}

// run compares the groups while there are at least two.
func (b *Balance) run(stop <-chan struct{}) {
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
		case <-tick.C:
			if b.step() {
				continue
			}
		}
		return
	}
}

// step compares the groups once. It reports whether at least two groups remain.
func (b *Balance) step() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	shares := map[*groupState]float64{}
	for key, p := range b.groups {
		share, err := p.measure()
		if errors.Is(err, fs.ErrNotExist) {
			delete(b.groups, key)
		} else if err == nil {
			shares[p] = share
		}
	}
	for p, lower := range groupsToLower(shares) {
		// An error means that the group was removed, or the next step tries again.
		if lower != p.lowered && p.group.Yield(lower) == nil {
			p.lowered = lower
		}
	}
	b.running = len(b.groups) > 1
	return b.running
}

// measure returns the number of processors that the group used since the last call.
func (p *groupState) measure() (float64, error) {
	used, err := p.group.cpuTime()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	share := 0.0
	if !p.at.IsZero() {
		share = float64(used-p.used) / float64(now.Sub(p.at))
	}
	p.used, p.at = used, now
	return share, nil
}

// minBusyShare returns the share of one processor above which the group counts as busy.
func (p *groupState) minBusyShare() float64 {
	if p.lowered {
		return minBusyLowered
	}
	return minBusy
}

// groupsToLower returns, for each group, whether its weight should be lower, given the number of
// processors that each used.
func groupsToLower(shares map[*groupState]float64) map[*groupState]bool {
	total, busy := 0.0, 0.0
	for p, share := range shares {
		if share >= p.minBusyShare() {
			total, busy = total+share, busy+1
		}
	}
	lower := map[*groupState]bool{}
	for p, share := range shares {
		threshold := lowerAbove
		if p.lowered {
			threshold = restoreBelow
		}
		lower[p] = share >= p.minBusyShare() && share >= threshold*total/busy
	}
	return lower
}

package cgroup

import (
	"errors"
	"io/fs"
	"sync"
	"time"
)

const (
	// balanceEvery is how often the processor time of groups is compared.
	balanceEvery = time.Second
	// leastBusy is the share of one processor below which a group is idle, and
	// leastBehind that below which one is that stands behind. Both are small: where
	// the host has much else to do, groups that burn get little.
	leastBusy, leastBehind = 0.02, 0.005
	// standBehind and standEqual are the shares of what a busy group uses on
	// average from which a group stands behind, and below which it does not any
	// more. They differ, so that a group does not change its place all the time.
	standBehind, standEqual = 0.5, 0.25
)

// Balance keeps groups that burn processors behind those that use them now and
// then. Groups of the same weight take turns when processors are short, so a
// command in an idle sandbox would wait for the turns of all sandboxes that burn,
// each time that one of its processes has waited for another. A group that used
// about as much as the other busy ones therefore has a lower weight in the next
// second. Among themselves busy groups share as before. Its zero value has no
// groups.
type Balance struct {
	mu      sync.Mutex
	groups  map[string]*place // by where the processor time stands
	running bool
	stopped bool
	stop    chan struct{}
}

// place is how a group stands.
type place struct {
	group  *Group
	used   time.Duration // in all, when it was last looked at
	at     time.Time
	behind bool
}

// Add makes a group one of those that are compared. It ends with the group's
// removal. A nil group has no weight, and Add does nothing.
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
		b.groups, b.stop = map[string]*place{}, make(chan struct{})
	}
	if b.groups[key] == nil {
		// The server that put it behind may have been another one.
		b.groups[key] = &place{group: g, behind: g.yields()}
	}
	if len(b.groups) > 1 && !b.running {
		b.running = true
		go b.run(b.stop)
	}
}

// Stop ends the comparison for good. Groups that stand behind stay there.
func (b *Balance) Stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.groups != nil {
		close(b.stop)
		b.groups = nil
	}
}

// run compares the groups as long as there are two.
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

// step compares the groups once. It reports whether there are enough to go on.
func (b *Balance) step() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	shares := map[*place]float64{}
	for key, p := range b.groups {
		share, err := p.look()
		if errors.Is(err, fs.ErrNotExist) {
			delete(b.groups, key)
		} else if err == nil {
			shares[p] = share
		}
	}
	for p, behind := range decide(shares) {
		// An error means that the group has been removed, which is seen the
		// next time. Otherwise it is tried again then.
		if behind != p.behind && p.group.Yield(behind) == nil {
			p.behind = behind
		}
	}
	b.running = len(b.groups) > 1
	return b.running
}

// look returns how many processors the group has used since the last look.
func (p *place) look() (float64, error) {
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

// least is the share of one processor from which the group is busy.
func (p *place) least() float64 {
	if p.behind {
		return leastBehind
	}
	return leastBusy
}

// decide returns for each group whether it is to stand behind, given how many
// processors each has used.
func decide(shares map[*place]float64) map[*place]bool {
	total, busy := 0.0, 0.0
	for p, share := range shares {
		if share >= p.least() {
			total, busy = total+share, busy+1
		}
	}
	behind := map[*place]bool{}
	for p, share := range shares {
		part := standBehind
		if p.behind {
			part = standEqual
		}
		behind[p] = share >= p.least() && share >= part*total/busy
	}
	return behind
}

package lifecycle

import (
	"slices"
	"sync"
)

// Report lists the findings and actions of Reconcile, by sandbox ID unless stated otherwise.
type Report struct {
	Adopted   []string // running, and watched
	Expired   []string // their time was up: removed
	Lost      []string // running in the store, missing in the engine
	Abandoned []string // their process was dead: removed
	Finished  []string // their removal had begun: completed
	Orphans   []string // only the engine had them: removed
	Unserved  []string // their engine is not registered in this process: left alone
	Left      []string // another live process is creating, keeping or changing them
	Mended    []string // their pause or resumption was interrupted: completed or undone
	Failed    []string // their reconciliation failed: the log has the reason
	Silent    []string // engines, not sandboxes, that did not answer: tried again once a minute
}

// Empty reports whether there was nothing to do.
func (r Report) Empty() bool {
	return len(slices.Concat(r.Adopted, r.Expired, r.Lost, r.Abandoned, r.Finished, r.Orphans, r.Unserved, r.Left, r.Mended, r.Failed, r.Silent)) == 0
}

// crewSize is how many sandboxes are reconciled at once. A removal mostly waits for the kernel.
const crewSize = 8

// crew reconciles several sandboxes at once and adds each to the list of the report that its work
// returns.
type crew struct {
	group sync.WaitGroup
	seats chan struct{}

	mu     sync.Mutex
	failed map[string]error
}

func (c *crew) do(id string, work func() (*[]string, error)) {
	if c.seats == nil {
		c.seats = make(chan struct{}, crewSize)
	}
	c.seats <- struct{}{}
	c.group.Go(func() {
		defer func() { <-c.seats }()
		list, err := work()
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case err != nil && c.failed == nil:
			c.failed = map[string]error{id: err}
		case err != nil:
			c.failed[id] = err
		case list != nil:
			*list = append(*list, id)
		}
	})
}

func (c *crew) wait() { c.group.Wait() }

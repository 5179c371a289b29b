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

// maxWorkers is how many sandboxes are reconciled at once. A removal mostly waits for the kernel.
const maxWorkers = 8

// workers reconciles several sandboxes at once and adds each to the list of the report that its
// work returns.
type workers struct {
	group sync.WaitGroup
	slots chan struct{}

	mu     sync.Mutex
	failed map[string]error
}

func (w *workers) do(id string, work func() (*[]string, error)) {
	if w.slots == nil {
		w.slots = make(chan struct{}, maxWorkers)
	}
	w.slots <- struct{}{}
	w.group.Go(func() {
		defer func() { <-w.slots }()
		list, err := work()
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case err != nil && w.failed == nil:
			w.failed = map[string]error{id: err}
		case err != nil:
			w.failed[id] = err
		case list != nil:
			*list = append(*list, id)
		}
	})
}

func (w *workers) wait() { w.group.Wait() }

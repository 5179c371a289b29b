package process

import (
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

const (
	// endedRetention is how long a later Connect can still learn how a process ended.
	endedRetention = 30 * time.Second
	// maxEnded limits the memory for ended processes.
	maxEnded = 10_000
)

// table contains the running processes and, for endedRetention, those that have ended.
type table struct {
	mu     sync.Mutex
	closed bool
	live   map[int]*process
	ended  []*process // in the order of their end
}

func newTable() table { return table{live: map[int]*process{}} }

// add returns false if the table is closed. Then the process must not run.
func (t *table) add(p *process) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.live[p.pid] = p
	return true
}

// moveToEnded moves a process to the ended ones.
func (t *table) moveToEnded(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.pid] == p {
		delete(t.live, p.pid)
	}
	t.removeExpired()
	t.ended = append(t.ended, p)
}

// removeExpired removes processes that ended long ago. t.mu must be held.
func (t *table) removeExpired() {
	drop := max(0, len(t.ended)+1-maxEnded)
	for drop < len(t.ended) && time.Since(t.ended[drop].endedAt) > endedRetention {
		drop++
	}
	if drop > 0 {
		t.ended = append([]*process(nil), t.ended[drop:]...)
	}
}

// close rejects all later processes. It returns the running ones, and whether this is the first
// call.
func (t *table) close() ([]*process, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := !t.closed
	t.closed = true
	return t.all(), first
}

// list returns the running processes.
func (t *table) list() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all()
}

// all returns a copy of the running processes. t.mu must be held.
func (t *table) all() []*process {
	live := make([]*process, 0, len(t.live))
	for _, p := range t.live {
		live = append(live, p)
	}
	return live
}

// find returns the process that sel selects. With ended it also finds ended ones. Of several with
// the same tag it returns the newest.
func (t *table) find(sel *pb.ProcessSelector, ended bool) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExpired()
	var found *process
	for _, p := range t.live {
		if p.matches(sel) && (found == nil || p.startedAt.After(found.startedAt)) {
			found = p
		}
	}
	for i := len(t.ended) - 1; ended && found == nil && i >= 0; i-- {
		if t.ended[i].matches(sel) {
			found = t.ended[i]
		}
	}
	if found == nil {
		return nil, notFound(sel)
	}
	return found, nil
}

func notFound(sel *pb.ProcessSelector) error {
	switch s := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.Pid))
	case *pb.ProcessSelector_Tag:
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", s.Tag))
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("a process is named by pid or by tag; the request has neither"))
}

package reap

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// All waits for every child of the process, also for orphans that the kernel
// hands to it. It is the only one who waits: a second waiter would take
// statuses that others need. A child that somebody started without it is
// reaped as an orphan.
type All struct {
	forked chan struct{} // wakes Run when there may be a child again

	mu      sync.Mutex
	clock   uint64                            // counts starts and deaths
	waiting map[int]chan<- syscall.WaitStatus // started children, by number
	forking map[uint64]struct{}               // when each start in progress began
	strays  map[int]stray                     // dead ones that a start may claim
}

// stray is a dead child that may belong to a start that has not yet learned
// its child's number.
type stray struct {
	died   uint64
	status syscall.WaitStatus
}

// NewAll returns a reaper whose Run must be called.
func NewAll() *All {
	return &All{
		forked:  make(chan struct{}, 1),
		waiting: map[int]chan<- syscall.WaitStatus{},
		forking: map[uint64]struct{}{},
		strays:  map[int]stray{},
	}
}

// Run reaps until the context ends or waiting becomes impossible. It blocks
// in the kernel while there are children, so that a status is there as soon
// as a child dies; the context is looked at only when there are none.
func (a *All) Run(ctx context.Context) error {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch err {
		case nil:
			a.deliver(pid, status)
		case syscall.EINTR:
		case syscall.ECHILD:
			select {
			case <-a.forked:
			case <-died:
			case <-ctx.Done():
				return ctx.Err()
			}
		default:
			return fmt.Errorf("wait for children: %w", err)
		}
	}
}

// Start starts a child whose status Run delivers, however early it dies.
func (a *All) Start(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	began := a.begin()
	pid, err := fork()
	exit := make(chan syscall.WaitStatus, 1)
	a.mu.Lock()
	if err == nil {
		a.register(pid, began, exit)
	}
	delete(a.forking, began)
	a.forget()
	a.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	select {
	case a.forked <- struct{}{}:
	default:
	}
	return pid, exit, nil
}

func (a *All) begin() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clock++
	a.forking[a.clock] = struct{}{}
	return a.clock
}

// register connects a child with its status, which may be there already. A
// stray that died before the fork began had the same number by chance. a.mu
// must be held.
func (a *All) register(pid int, began uint64, exit chan<- syscall.WaitStatus) {
	if s, ok := a.strays[pid]; ok && s.died > began {
		delete(a.strays, pid)
		exit <- s.status
		return
	}
	a.waiting[pid] = exit
}

func (a *All) deliver(pid int, status syscall.WaitStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if exit, ok := a.waiting[pid]; ok {
		delete(a.waiting, pid)
		exit <- status
		return
	}
	if len(a.forking) > 0 {
		a.clock++
		a.strays[pid] = stray{a.clock, status}
	}
}

// forget drops the strays that no start in progress can claim. a.mu must be
// held.
func (a *All) forget() {
	if len(a.forking) == 0 {
		clear(a.strays)
		return
	}
	oldest := a.clock
	for began := range a.forking {
		oldest = min(oldest, began)
	}
	for pid, s := range a.strays {
		if s.died < oldest {
			delete(a.strays, pid)
		}
	}
}

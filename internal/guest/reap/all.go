package reap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// All waits for all child processes, including orphans that the kernel reparents to this process.
// Nothing else may wait for child processes, because a second waiter would take statuses that
// others need. A child that was not started through All is reaped as an orphan.
type All struct {
	mu        sync.Mutex
	events    uint64                            // counts starts and ends
	exits     map[int]chan<- syscall.WaitStatus // started children, by PID
	forking   map[uint64]struct{}               // events when each start in progress began
	unclaimed map[int]deadChild                 // ended children that a start in progress may claim
}

// deadChild is an ended child process that may belong to a start that does not know its PID yet.
type deadChild struct {
	died   uint64
	status syscall.WaitStatus
}

// NewAll returns a reaper. The caller must call its Run.
func NewAll() *All {
	return &All{
		exits:     map[int]chan<- syscall.WaitStatus{},
		forking:   map[uint64]struct{}{},
		unclaimed: map[int]deadChild{},
	}
}

// Run reaps until the context ends or waiting becomes impossible. It does not block in wait4, where
// it would occupy one of the runtime's processors. The runtime would then check every few
// microseconds, which is expensive under a user-space kernel.
func (a *All) Run(ctx context.Context) error {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	defer signal.Stop(died)
	for {
		if err := a.collect(); err != nil {
			return err
		}
		select {
		case <-died:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// collect reaps all ended child processes. One signal may stand for several.
func (a *All) collect() error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.ECHILD), err == nil && pid == 0:
			return nil
		case err != nil:
			return fmt.Errorf("wait for children: %w", err)
		default:
			a.deliver(pid, status)
		}
	}
}

// Start starts a child process whose status Run delivers, even if it ends at once.
func (a *All) Start(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	started := a.begin()
	pid, err := fork()
	exit := make(chan syscall.WaitStatus, 1)
	a.mu.Lock()
	if err == nil {
		a.register(pid, started, exit)
	}
	delete(a.forking, started)
	a.forget()
	a.mu.Unlock()
	if err != nil {
		return 0, nil, err
	}
	return pid, exit, nil
}

func (a *All) begin() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events++
	a.forking[a.events] = struct{}{}
	return a.events
}

// register connects a child process with its status, which may exist already. An orphan that
// ended before the fork began has the same PID only by chance. a.mu must be held.
func (a *All) register(pid int, started uint64, exit chan<- syscall.WaitStatus) {
	if s, ok := a.unclaimed[pid]; ok && s.died > started {
		delete(a.unclaimed, pid)
		exit <- s.status
		return
	}
	a.exits[pid] = exit
}

func (a *All) deliver(pid int, status syscall.WaitStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if exit, ok := a.exits[pid]; ok {
		delete(a.exits, pid)
		exit <- status
		return
	}
	if len(a.forking) > 0 {
		a.events++
		a.unclaimed[pid] = deadChild{a.events, status}
	}
}

// forget removes the ended children that cannot belong to a start in progress. a.mu must be held.
func (a *All) forget() {
	if len(a.forking) == 0 {
		clear(a.unclaimed)
		return
	}
	oldest := a.events
	for started := range a.forking {
		oldest = min(oldest, started)
	}
	for pid, s := range a.unclaimed {
		if s.died < oldest {
			delete(a.unclaimed, pid)
		}
	}
}

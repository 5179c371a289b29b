// Package reap owns waiting for child processes: for each by its PID if the guest runs within
// another process, or for all children and orphans if it is the sandbox's first process.
package reap

import (
	"errors"
	"syscall"
)

// Reaper starts processes and waits for them.
type Reaper interface {
	// Start calls fork, which returns the PID of its child. The channel receives the child's status
	// once and is never closed.
	Start(fork func() (pid int, err error)) (pid int, exit <-chan syscall.WaitStatus, err error)
}

// Each waits for each child process by its PID and for no others.
type Each struct{}

// Start starts a child and a goroutine that waits for it.
func (Each) Start(fork func() (int, error)) (int, <-chan syscall.WaitStatus, error) {
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	exit := make(chan syscall.WaitStatus, 1)
	go func() {
		var status syscall.WaitStatus
		for {
			_, err := syscall.Wait4(pid, &status, 0, nil)
			if !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		exit <- status
	}()
	return pid, exit, nil
}

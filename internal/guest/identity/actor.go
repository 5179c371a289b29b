package identity

import (
	"fmt"
	"runtime"
	"syscall"
)

// Actor does work as users. The zero Actor does all of it as the current
// user, which is all that a guest without root's rights can do.
type Actor struct {
	// Switch says that the guest runs as root and may become others.
	Switch bool
}

// Attr returns how to start a process as u, in a session of its own, so that
// a signal to its group reaches its children and no other process. Only root's
// processes have capabilities.
func (a Actor) Attr(u User) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if !a.Switch {
		return attr
	}
	attr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	return attr
}

// outcome is how work on another goroutine ended.
type outcome struct {
	err      error
	panicked any
}

// Do runs work with the rights of u and returns its error. work must not
// start processes or goroutines that rely on those rights.
func (a Actor) Do(u User, work func() error) error {
	if !a.Switch || u.UID == 0 {
		return work()
	}
	done := make(chan outcome, 1)
	go a.become(u, work, done)
	out := <-done
	if out.panicked != nil {
		panic(out.panicked)
	}
	return out.err
}

// become owns its goroutine: where the thread cannot be made root's again it
// stays locked, and the runtime ends the thread together with the goroutine.
// Otherwise the next request on it would run with a stranger's rights.
func (a Actor) become(u User, work func() error, done chan<- outcome) {
	runtime.LockOSThread()
	var out outcome
	defer func() {
		out.panicked = recover()
		if restoreThread() == nil {
			runtime.UnlockOSThread()
		}
		done <- out
	}()
	if err := assume(u); err != nil {
		out.err = fmt.Errorf("act as %s: %w", u.Name, err)
		return
	}
	out.err = work()
}

package identity

import (
	"fmt"
	"runtime"
	"syscall"
)

// Actor runs work as users. The zero Actor runs everything as the current user, which is the only
// possibility without root.
type Actor struct {
	// Switch is set if the guest runs as root and may switch users.
	Switch bool
}

// Attr returns the attributes for starting a process as u in its own session, so that a signal to
// its group reaches its children and no other process. Only root's processes have capabilities.
func (a Actor) Attr(u User) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if !a.Switch {
		return attr
	}
	attr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	return attr
}

// outcome is the result of work on another goroutine.
type outcome struct {
	err      error
	panicked any
}

// Do runs work with the rights of u and returns its error. work must not start processes or
// goroutines that rely on those rights.
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

// become runs work on a locked thread. If the thread cannot switch back to root, it stays locked
// and the runtime ends it with the goroutine. Otherwise the next goroutine on the thread would run
// with another user's rights.
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
	if err := switchThread(u); err != nil {
		out.err = fmt.Errorf("act as %s: %w", u.Name, err)
		return
	}
	out.err = work()
}

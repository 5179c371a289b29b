package process

import (
	"bytes"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/census"
)

// procDir is the proc file system.
const procDir = "/proc"

// followPauses are the pauses before the checks of a signalled group.
var followPauses = []time.Duration{20 * time.Millisecond, 80 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}

// group is a process group that is about to get a signal that ends it.
//
// A new process may miss the signal if its parent gets it during the fork and dies, and the process
// joins the group only afterwards. When the leader has ended, group therefore signals each process
// that was not a member before and whose parent is not a living earlier member. A program that
// handles the signal stays alive, so neither it nor its clean-up processes get a second signal.
type group struct {
	leader int
	sig    syscall.Signal
	before map[int]uint64 // start time of each member, by PID
}

// newGroup returns a group of the processes that were listed before the signal. If listed is empty,
// follow does nothing.
func newGroup(listed []census.Member, leader int, sig syscall.Signal) *group {
	if len(listed) == 0 {
		return &group{}
	}
	g := &group{leader: leader, sig: sig, before: map[int]uint64{}}
	for _, m := range listed {
		if m.Group == leader {
			g.before[m.PID] = m.Start
		}
	}
	return g
}

// follow signals the processes that missed the signal. It returns after the last check.
func (g *group) follow() {
	if g.leader <= 1 {
		return
	}
	for _, pause := range followPauses {
		time.Sleep(pause)
		members, err := census.Members(procDir, g.leader)
		if err != nil || len(members) == 0 {
			return
		}
		for _, m := range g.missed(members) {
			g.before[m.PID] = m.Start // do not signal it again
			// An error means that the process has already ended.
			_ = syscall.Kill(m.PID, g.sig)
		}
	}
}

// missed returns the members that the signal cannot have reached. It returns none while the leader
// lives.
func (g *group) missed(members []census.Member) []census.Member {
	old := map[int]bool{}
	var joined []census.Member
	for _, m := range members {
		if m.PID == g.leader {
			return nil
		}
		if start, ok := g.before[m.PID]; ok && start == m.Start {
			old[m.PID] = true
		} else {
			joined = append(joined, m)
		}
	}
	var missed []census.Member
	for _, m := range joined {
		if !old[m.Parent] {
			missed = append(missed, m)
		}
	}
	return missed
}

// interrupted returns the foreground process group of a terminal if the input contains an interrupt
// character such as Ctrl-C, otherwise nil.
func (t *terminal) interrupted(input []byte) *group {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return nil
	}
	var g *group
	_ = raw.Control(func(fd uintptr) { // fails only if the file is closed
		mode, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		if err != nil || mode.Lflag&unix.ISIG == 0 || bytes.IndexByte(input, mode.Cc[unix.VINTR]) < 0 {
			return
		}
		if leader, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil {
			if members, err := census.Members(procDir, leader); err == nil {
				g = newGroup(members, leader, syscall.SIGINT)
			}
		}
	})
	return g
}

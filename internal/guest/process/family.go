package process

import (
	"slices"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// family returns the processes of a command: its group, what descends from it,
// and what has its mark, in whichever group and below whichever parent. It is
// empty if the kernel lists nothing.
func (p *process) family() []census.Member {
	if !p.gone {
		all, err := census.Family(procDir, p.pid, p.mark.Has)
		if err == nil && len(all) > 0 {
			return all
		}
	}
	if p.mark == lineage.None {
		return nil
	}
	all, err := census.Belonging(procDir, p.mark.Has)
	if err != nil {
		return nil
	}
	return all
}

// reachesAll reports whether a signal goes to all processes of a command and not
// to its process group alone. SIGINT, SIGHUP and SIGQUIT are those that a
// terminal sends, and a program that leaves the group, as nohup's and setsid's
// do, is to survive them. With the others a caller ends the command: a process that has left the
// group would use CPU for nothing, and its output has no reader.
func reachesAll(sig syscall.Signal) bool {
	return sig == syscall.SIGKILL || sig == syscall.SIGTERM
}

// outside signals the members of a family that are in no process group of the
// number leader, and reports whether there was one.
func outside(family []census.Member, leader int, sig syscall.Signal) bool {
	any := false
	for _, m := range family {
		if m.Group != leader && m.PID > 1 {
			// An error means that it has ended by itself.
			any = syscall.Kill(m.PID, sig) == nil || any
		}
	}
	return any
}

const (
	// sweepPasses bounds how often what is left of a killed command is looked
	// for: processes that a kill finds in the middle of a fork.
	sweepPasses = 100
	// sweepPause is between two looks, beginning with the fourth.
	sweepPause = 20 * time.Millisecond
)

// sweep kills what is left of a family until nothing is. A process that forks
// faster than it is listed is found by one of its children: each has the mark,
// and one that has been killed makes no more.
func sweep(mark lineage.Mark) {
	if mark == lineage.None {
		return
	}
	for pass := range sweepPasses {
		left, err := census.Belonging(procDir, mark.Has)
		left = slices.DeleteFunc(left, func(m census.Member) bool { return m.Zombie || m.PID <= 1 })
		if err != nil || len(left) == 0 {
			return
		}
		for _, m := range left {
			_ = syscall.Kill(m.PID, syscall.SIGKILL) // it may have ended by itself
		}
		if pass > 2 {
			time.Sleep(sweepPause)
		}
	}
}

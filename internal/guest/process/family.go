package process

import (
	"slices"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// family returns the processes of a command: its group, its descendants, and those with its mark,
// in whichever group and below whichever parent. It is empty if the kernel lists nothing.
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

// reachesAll reports whether a signal is sent to all processes of a command and not only to its
// process group. SIGINT, SIGHUP and SIGQUIT are those of a terminal, which a program that leaves
// the group, like those of nohup and setsid, should survive. With the others a caller ends the
// command: a process that has left the group would use CPU for nothing, and its output has no
// reader.
func reachesAll(sig syscall.Signal) bool {
	return sig == syscall.SIGKILL || sig == syscall.SIGTERM
}

// outside signals the members of a family that are not in the leader's process group, and reports
// whether there was one.
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
	// sweepPasses limits how often the rest of a killed command is looked for: a kill may hit
	// processes in the middle of a fork.
	sweepPasses = 100
	// sweepPause is the pause between two passes, from the fourth on.
	sweepPause = 20 * time.Millisecond
)

// sweep kills the rest of a family until nothing is left. A process that forks faster than it is
// listed is found through its children: each has the mark, and a killed one makes no more.
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

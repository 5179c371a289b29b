package process

import (
	"slices"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// family returns the processes of a command: those in its process group, its descendants, and those
// with its mark. It is empty if the kernel lists no processes.
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
// process group. SIGINT, SIGHUP and SIGQUIT come from a terminal, and programs that leave the group
// (with nohup or setsid) should survive them. With the other signals, the caller ends the command.
// A process that has left the group would then use CPU time for output without a reader.
func reachesAll(sig syscall.Signal) bool {
	return sig == syscall.SIGKILL || sig == syscall.SIGTERM
}

// signalOutside signals the members of a family that are not in the leader's process group, and
// reports whether there were any.
func signalOutside(family []census.Member, leader int, sig syscall.Signal) bool {
	sent := false
	for _, m := range family {
		if m.Group != leader && m.PID > 1 {
			// An error means that the process has already ended.
			sent = syscall.Kill(m.PID, sig) == nil || sent
		}
	}
	return sent
}

const (
	// scanPasses limits the number of attempts to kill the rest of a family. A process may fork
	// while it is being killed.
	scanPasses = 100
	// scanPause is the pause between two passes, from the fourth on.
	scanPause = 20 * time.Millisecond
)

// killFamily kills the rest of a family until none is left. It also finds processes that fork
// faster than they are listed, because their children have the mark, and a killed process starts no
// more children.
func killFamily(mark lineage.Mark) {
	if mark == lineage.None {
		return
	}
	for pass := range scanPasses {
		left, err := census.Belonging(procDir, mark.Has)
		left = slices.DeleteFunc(left, func(m census.Member) bool { return m.Zombie || m.PID <= 1 })
		if err != nil || len(left) == 0 {
			return
		}
		for _, m := range left {
			_ = syscall.Kill(m.PID, syscall.SIGKILL) // it may have ended already
		}
		if pass > 2 {
			time.Sleep(scanPause)
		}
	}
}

package interpreter

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/crannog/crannog/internal/guest/census"
)

// Starter starts processes as the sandbox's user. It is an interface because PID 1 must wait for
// processes through its reaper.
type Starter interface {
	// Start starts cmd, whose path, arguments, environment, directory and files are set and which
	// leads its own process group. Start sets the credentials. It must not wait for the process,
	// because Wait does. If the user may not enter the directory, the error is an *fs.PathError
	// with Op "chdir".
	Start(cmd *exec.Cmd) (Process, error)
}

// Process is a started process.
type Process interface {
	// Family returns the process and all processes that it or its descendants started, in any
	// process group. The list is empty once the process has ended.
	Family() ([]census.Member, error)
	// Signal sends sig to the process group, which may no longer exist.
	Signal(sig syscall.Signal) error
	// Wait waits until the process has ended. It may be called once.
	Wait() Exit
}

// Exit describes how a process ended.
type Exit struct {
	Code   int            // meaningful if Signal is 0
	Signal syscall.Signal // signal that killed the process, or 0
}

// String describes how the process ended, as the end of a sentence.
func (e Exit) String() string {
	switch {
	case e.Signal == syscall.SIGKILL:
		return "was killed (signal 9), perhaps because the sandbox ran out of memory"
	case e.Signal != 0:
		return fmt.Sprintf("was killed by signal %d (%s)", int(e.Signal), e.Signal)
	default:
		return fmt.Sprintf("exited with status %d", e.Code)
	}
}

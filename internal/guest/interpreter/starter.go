package interpreter

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/crannog/crannog/internal/guest/census"
)

// Starter starts processes as the sandbox's user. It is an interface because, in PID 1, a caller
// that waits for a process competes with the reaper.
type Starter interface {
	// Start starts cmd, whose path, arguments, environment, directory and files are set and which
	// leads its own process group. Start adds the credentials. It must not wait for the process,
	// which Wait does. If the user may not enter the directory, the error is an *fs.PathError whose
	// Op is "chdir".
	Start(cmd *exec.Cmd) (Process, error)
}

// Process is a started process.
type Process interface {
	// Family returns the process, followed by all others that it or its descendants have started,
	// in its process group or not. It is empty once the process has ended.
	Family() ([]census.Member, error)
	// Signal sends sig to the whole process group. The group may be gone.
	Signal(sig syscall.Signal) error
	// Wait returns when the process has ended. It is called once.
	Wait() Exit
}

// Exit is how a process ended.
type Exit struct {
	Code   int            // meaningful if Signal is 0
	Signal syscall.Signal // what killed it, or 0
}

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

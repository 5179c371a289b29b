package crannog

import (
	"fmt"
	"syscall"

	"github.com/crannog/crannog/internal/guest/client"
)

// ExitError is returned for a command that ended with a code other than zero.
type ExitError struct {
	exit   client.Exit
	Stderr []byte // collected by Output, shortened in the middle
}

// Error describes the end of the command.
func (e *ExitError) Error() string {
	switch {
	case e.exit.TimedOut:
		return "the command ran into its time limit"
	case e.exit.Signal != 0:
		return "signal: " + e.exit.Signal.String()
	}
	return fmt.Sprintf("exit status %d", e.exit.Code)
}

// ExitCode returns the command's exit code, 128+N after signal N, 124 at a time limit.
func (e *ExitError) ExitCode() int { return e.exit.Code }

// Signal returns the signal that ended the command, or zero.
func (e *ExitError) Signal() syscall.Signal { return e.exit.Signal }

// Is makes errors.Is(err, ErrTimeout) true at a time limit.
func (e *ExitError) Is(target error) bool { return target == ErrTimeout && e.exit.TimedOut }

package engine

import (
	"fmt"

	"github.com/crannog/crannog/internal/fault"
)

// CheckPort returns an error for a number that is not a valid TCP port.
func CheckPort(port int) error {
	if port < 1 || port > 65535 {
		return fault.Newf(fault.Invalid, "invalid_port", "port %d is not between 1 and 65535", port)
	}
	return nil
}

// PortClosed returns the error of Dial for a port without a listener.
func PortClosed(port int, cause error) error {
	return fault.Wrap(cause, fault.Unavailable, "port_closed", fmt.Sprintf("nothing listens on port %d", port))
}

// HasStopped returns the error of a method that needs a running sandbox when the sandbox has ended.
// The cause may be nil.
func HasStopped(id string, cause error) error {
	return fault.Wrap(cause, fault.NotFound, "sandbox_not_found", fmt.Sprintf("sandbox %q has stopped", id))
}

// NotDispatched returns the error of an engine in a program that did not call reexec.Dispatch. The
// argument why is a clause that explains why the engine needs the call.
func NotDispatched(why string) error {
	return fault.New(fault.Internal, "reexec_missing", "this program did not call crannog.Main at the start of main").
		WithHint(why + ", so call crannog.Main() first in main")
}

// Command crannog-guest is the first process in a sandbox. It reads its configuration from standard
// input and has no use outside of a sandbox. A program in the sandbox starts crannog-guest again to
// search files, and an engine starts it again to relay streams. As the first process of a jail, it
// first creates the jail.
package main

import (
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/engine/microvm/machine"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
)

func main() {
	reexec.Dispatch(setup.Role(), machine.Role())
	guestmain.Play()
}

// Command crannog-guest is the first process inside a sandbox. It reads its configuration from
// standard input and is of no use outside. Started again by a program inside, it searches files;
// by an engine, it carries streams. Started as the first process of a jail or
// of a virtual machine, it makes the sandbox before.
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

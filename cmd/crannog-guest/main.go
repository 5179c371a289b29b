// Command crannog-guest is the first process inside a sandbox. It reads its configuration from
// standard input and is of no use outside. Started again by a program inside, it searches files;
// by an engine, it carries streams. Started as a jail's first process, it makes the jail before.
package main

import (
	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/host/reexec"
)

func main() {
	reexec.Dispatch(setup.Role())
	guestmain.Play()
}

// Command crannog-guest is the first process inside a sandbox. It reads its configuration from
// standard input and is of no use outside. Started again by a program inside, it searches files;
// by an engine, it carries streams. Started as a jail's first process, it makes the jail before.
package main

import (
	"os"

	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/guest/search"
	"github.com/crannog/crannog/internal/host/reexec"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == search.Role {
		os.Exit(search.Main(os.Args[2:], os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == guestboot.ChannelRole {
		guestmain.Channel()
	}
	reexec.Dispatch(setup.Role())
	guestmain.Main()
}

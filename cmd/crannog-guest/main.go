// Command crannog-guest is the first process inside a sandbox. It reads its configuration from
// standard input and is of no use outside. It also searches files when a program inside starts it.
// As a jail's first process it creates the jail before.
package main

import (
	"os"

	"github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/guest/search"
	"github.com/crannog/crannog/internal/host/reexec"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == search.Role {
		os.Exit(search.Main(os.Args[2:], os.Stdout))
	}
	reexec.Dispatch(setup.Role())
	guestmain.Main()
}

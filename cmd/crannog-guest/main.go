// Command crannog-guest is the first process inside a sandbox. It takes its
// configuration from standard input and is of no use outside. Started again by
// a program inside it searches files. Started as a jail's first process it makes the jail before.
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

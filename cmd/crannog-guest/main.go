// Command crannog-guest is the first process inside a sandbox. It takes its
// configuration from standard input and is of no use outside. Started again by
// a program inside it searches files, and by an engine it carries streams.
package main

import (
	"os"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestmain"
	"github.com/crannog/crannog/internal/guest/search"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == search.Role {
		os.Exit(search.Main(os.Args[2:], os.Stdout))
	}
	if len(os.Args) > 1 && os.Args[1] == guestboot.ChannelRole {
		guestmain.Channel()
	}
	guestmain.Main()
}

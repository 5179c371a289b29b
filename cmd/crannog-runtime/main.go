// Command crannog-runtime plays the parts of gVisor that a sandbox is made of. The
// crannog binary carries it and starts it; by hand it is of no use.
package main

import (
	"fmt"
	"os"

	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/host/reexec"
)

func main() {
	reexec.Dispatch(gvisor.Roles()...)
	fmt.Fprintln(os.Stderr, "crannog-runtime: crannog starts this program; it does nothing by itself")
	os.Exit(2)
}

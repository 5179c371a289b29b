// Command crannog-runtime runs the processes of gVisor for a sandbox. The crannog binary embeds and
// starts it; it is not for use by hand.
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

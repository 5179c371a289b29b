package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/runsc/cli/maincli"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
	"github.com/crannog/crannog/internal/reexec"
)

// Roles are the processes that the engine starts from this binary. A program
// that links the engine hands them to reexec.Dispatch.
func Roles() []reexec.Role {
	return []reexec.Role{
		{Match: reexec.Arg0(bootArg0), Run: runBoot},
		{Match: reexec.Arg0(probeArg0), Run: runProbe},
		{Match: isRuntime, Run: runRuntime},
	}
}

// isRuntime recognises the processes that gVisor starts: its kernel and file
// servers by their program name, its unmounter by the first argument.
func isRuntime(args []string) bool {
	return strings.HasPrefix(filepath.Base(args[0]), "runsc-") ||
		(len(args) > 1 && args[0] == "/proc/self/exe" && args[1] == "umount")
}

func runRuntime() {
	if err := errors.Join(tameLibc(), filters.Install()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	maincli.Main()
}

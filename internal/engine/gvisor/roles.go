package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

// kernelArg0 is the name of gVisor's kernel process.
const kernelArg0 = "runsc-sandbox"

// isRuntime recognises the processes that gVisor starts: its kernel and file
// servers by their program name, its unmounter by the first argument.
func isRuntime(args []string) bool {
	return strings.HasPrefix(filepath.Base(args[0]), "runsc-") ||
		(len(args) > 1 && args[0] == "/proc/self/exe" && args[1] == "umount")
}

func runRuntime() {
	if filepath.Base(os.Args[0]) == kernelArg0 {
		// At its start the kernel process drops some 35 capabilities on all
		// of its threads, one after the other, and each drop wakes each
		// thread: 20 ms of a boot. With one processor there are fewer
		// threads to wake, which leaves a quarter of that. gVisor sets the
		// number that the box gets afterwards, before it reads it.
		runtime.GOMAXPROCS(1)
	}
	if err := errors.Join(tameLibc(), filters.Install()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	maincli.Main()
}

package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

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

// spread is when a file server may use all processors: once it has started.
const spread = 300 * time.Millisecond

// startOnOneProcessor bounds how many threads a gVisor process has while it
// starts. It then drops some 35 capabilities on all of its threads, one after
// the other, and each drop wakes each thread: 20 ms of a boot, of which this
// leaves a quarter. gVisor's kernel process sets the number that the box gets
// itself before it reads it; the file server's is set here.
func startOnOneProcessor() {
	processors := runtime.GOMAXPROCS(1)
	if filepath.Base(os.Args[0]) == fileServerArg0 {
		time.AfterFunc(spread, func() { runtime.GOMAXPROCS(processors) })
	}
}

// fileServerArg0 is the name of gVisor's file server process, the gofer.
const fileServerArg0 = "runsc-gofer"

// isRuntime recognises the processes that gVisor starts: its kernel and file
// servers by their program name, its unmounter by the first argument.
func isRuntime(args []string) bool {
	return strings.HasPrefix(filepath.Base(args[0]), "runsc-") ||
		(len(args) > 1 && args[0] == "/proc/self/exe" && args[1] == "umount")
}

func runRuntime() {
	startOnOneProcessor()
	if err := errors.Join(tameLibc(), filters.Install()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	maincli.Main()
}

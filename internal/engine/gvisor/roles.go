package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
	"github.com/crannog/crannog/internal/engine/gvisor/numbers"
	"github.com/crannog/crannog/internal/engine/gvisor/trim"
	"github.com/crannog/crannog/internal/engine/gvisor/watch"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Roles returns the processes that the engine starts from this binary. A program that links the
// engine passes them to reexec.Dispatch.
func Roles() []reexec.Role {
	return []reexec.Role{
		{Match: reexec.Arg0(bootArg0), Run: runBoot},
		{Match: reexec.Arg0(probeArg0), Run: runProbe},
		{Match: isRuntime, Run: runRuntime},
	}
}

// Names of the processes that gVisor starts: its kernel, and its file server, called gofer.
const (
	kernelArg0     = "runsc-sandbox"
	fileServerArg0 = "runsc-gofer"
)

// isRuntime reports whether the arguments are those of a process that gVisor starts: its kernel and
// file server by the program name, its unmounter by the first argument.
func isRuntime(args []string) bool {
	return strings.HasPrefix(filepath.Base(args[0]), "runsc-") ||
		(len(args) > 1 && args[0] == "/proc/self/exe" && args[1] == "umount")
}

// runRuntime runs a process that gVisor starts.
func runRuntime() {
	speedUpStart(filepath.Base(os.Args[0]))
	// The log is discarded, and a message that is not logged need not be formatted.
	log.SetLevel(log.Warning)
	var trimErr error
	if filepath.Base(os.Args[0]) == kernelArg0 {
		watch.Install(callTables()...)
		numbers.Install(callTables()...)
		limitTasks()
		addBecome()
		allowMarks()
		allowLoopbackAddress()
		allowAttributes()
		concealDisks()
		registerIdlePlatform()
		trimErr = trim.Install()
	}
	if err := errors.Join(restartWithTunables(), filters.Install(), trimErr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// A sandbox needs only three of gVisor's commands.
	cli.Run(nil, map[util.SubCommand]string{
		bootCommand{new(sentrycmd.Boot)}: "",
		new(cmd.Gofer):                   "",
		new(sentrycmd.Umount):            "",
	}, nil)
}

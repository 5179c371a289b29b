// Package early owns what a process of a box does, or spares itself, before
// gVisor's packages initialise themselves. Go initialises a package as soon as
// all that it imports is ready, the first by its path; so this one imports
// next to nothing, and comes before all of gVisor's. A test watches that.
//
// Most of a start of this program is their initialisation: 5 to 7 ms of
// processor time, four times for each box.
package early

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	_ "unsafe" // for go:linkname

	"github.com/crannog/crannog/internal/engine/gvisor/first"
)

// kernelArg0 is the name of the process in which a box's programs run.
const kernelArg0 = "runsc-sandbox"

// exitFailed is how gVisor's own commands end that fail.
const exitFailed = 128

func init() {
	if fd, dir, ok := unmounting(os.Args); ok {
		os.Exit(unmount(fd, dir))
	}
	if len(os.Args) == 0 {
		return
	}
	name := filepath.Base(os.Args[0])
	if name != kernelArg0 {
		unimplementedCalls.Do(func() {})
	}
	if first.Known {
		begin()
	}
}

// unimplementedCalls is what guards gVisor's counter of the system calls that
// it does not know: two thousand values with a name each. Only its kernel
// counts, so only there it is made.
//
//go:linkname unimplementedCalls gvisor.dev/gvisor/pkg/sentry/kernel.unimplementedSyscallCounterInit
var unimplementedCalls sync.Once

// unmounting recognises the program that gVisor starts to unmount one
// directory. A form that it does not expect is left to gVisor's own.
func unmounting(args []string) (fd int, dir string, ok bool) {
	if len(args) != 4 || args[0] != "/proc/self/exe" || args[1] != "umount" || !strings.HasPrefix(args[3], "/") {
		return 0, "", false
	}
	number, found := strings.CutPrefix(args[2], "--sync-fd=")
	fd, err := strconv.Atoi(number)
	return fd, args[3], found && err == nil && fd > 2
}

// unmount waits for one byte and unmounts the directory. Without the byte
// whoever asked for it has ended or has changed its mind.
func unmount(fd int, dir string) (code int) {
	var one [1]byte
	n, err := syscall.Read(fd, one[:])
	for err == syscall.EINTR {
		n, err = syscall.Read(fd, one[:])
	}
	if err != nil || n != 1 || syscall.Unmount(dir, syscall.MNT_DETACH) != nil {
		return exitFailed
	}
	return 0
}

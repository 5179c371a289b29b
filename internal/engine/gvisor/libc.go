//go:build cgo

package gvisor

// A build with cgo, which go build makes on a host with a C compiler, would link to the host's
// libraries. gVisor starts the program again in a root without libraries. Therefore every program
// with the engine is linked statically.

// #cgo LDFLAGS: -static
import "C"

import (
	"os"
	"syscall"
)

// linkedWithC is true for a build with cgo.
const linkedWithC = true

// tunables are the settings with which glibc works in a gVisor process.
//
//   - rseq: glibc registers memory with the kernel for every thread. gVisor's
//     stub processes are forks that unmap all of their memory, and the kernel
//     kills a process whose registered memory is unmapped.
//   - arena_max: glibc reads the number of processors from a file before it
//     creates another arena, and gVisor's own system call filter lets it open
//     no file.
const tunables = "glibc.pthread.rseq=0:glibc.malloc.arena_max=1"

// restartWithTunables executes this program again with those settings, because glibc reads them
// only at the start. Only a build with cgo has a glibc.
func restartWithTunables() error {
	const key = "GLIBC_TUNABLES"
	if os.Getenv(key) == tunables {
		return nil
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), key+"="+tunables))
}

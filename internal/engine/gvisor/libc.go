//go:build cgo

package gvisor

// A build with cgo, as plain go build makes it on a host with a C compiler, would link to the
// host's libraries. gVisor starts the program again where there are none. Therefore every program
// with the engine is linked statically.

// #cgo LDFLAGS: -static
import "C"

import (
	"os"
	"syscall"
)

// linkedWithC is true for a build with cgo.
const linkedWithC = true

// tamed are the settings under which glibc can live in a gVisor process.
//
//   - rseq: glibc registers memory with the kernel for every thread. gVisor's
//     stub processes are forks that unmap all of theirs, and the kernel ends a
//     process whose registered memory is gone.
//   - arena_max: glibc counts processors by a file before it makes another
//     arena, and gVisor's own system call filter lets it open none.
const tamed = "glibc.pthread.rseq=0:glibc.malloc.arena_max=1"

// tameLibc executes this program again with those settings, because glibc reads them only at the
// start. Only a build with cgo has a glibc.
func tameLibc() error {
	const key = "GLIBC_TUNABLES"
	if os.Getenv(key) == tamed {
		return nil
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), key+"="+tamed))
}

package gvisor

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sync"

	"github.com/crannog/crannog/internal/idle"
)

// settled is when a gVisor process has started for sure: what only its start
// does without comes back.
const settled = 2 * time.Second

// spread is when a file server may use all processors: once it has started.
const spread = 300 * time.Millisecond

// startMemory is how much memory a gVisor process may take for itself before it
// collects garbage while it starts. It needs less than ten megabytes.
const startMemory = 48 << 20

// quicken takes from the start of a gVisor process what costs time and gives
// a box nothing.
func quicken(name string) {
	// gVisor drops some 35 capabilities on all threads, one after the other,
	// and each drop wakes each thread: 20 ms of a boot with a thread for each
	// processor, of which one leaves a quarter. The kernel process sets the
	// number that the box gets itself before it reads it; the file server's
	// is set here.
	processors := runtime.GOMAXPROCS(1)
	// A process that has just started has next to no garbage, and collecting
	// it costs the kernel's start 5 ms. A box that is busy from its first
	// moment has some.
	percent, most := debug.SetGCPercent(-1), debug.SetMemoryLimit(startMemory)
	switch name {
	case fileServerArg0:
		time.AfterFunc(spread, func() { runtime.GOMAXPROCS(processors) })
	case kernelArg0:
		forgoTracePoints()
		takeSignalsEarly()
	}
	started := programPages()
	time.AfterFunc(settled, func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(most)
		debug.FreeOSMemory()
		letGo(started)
		idle.GiveBack(idle.After)
	})
}

// tracePoints is what guards the table of gVisor's trace points.
//
//go:linkname tracePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var tracePoints sync.Once

// forgoTracePoints keeps the table empty. Nothing here watches a box by trace
// points, and naming all thousand takes 5 ms. A watcher that asked for one
// would be refused, not left without events.
func forgoTracePoints() { tracePoints.Do(func() {}) }

// takeSignalsEarly begins to take signals while the kernel waits for its first
// stub. It would take them one by one just before the guest starts, each by
// way of another thread, for 8 ms; a signal that is taken already costs
// nothing.
func takeSignalsEarly() {
	const name = "systrap"
	if systrap, err := platform.Lookup(name); err == nil {
		platform.Register(name, signalTaker{systrap})
	}
}

// signalTaker is a platform's constructor that takes the process's signals on
// the way: by then capabilities are dropped, so another thread costs little.
type signalTaker struct{ platform.Constructor }

func (t signalTaker) New(opts platform.Options) (platform.Platform, error) {
	go func() {
		// What arrives before gVisor listens is lost instead of ending the
		// process. Nobody sends any: we kill.
		taken := make(chan os.Signal, 1)
		for sig := syscall.Signal(1); sig < 32; sig++ {
			switch sig {
			case syscall.SIGURG, syscall.SIGPIPE, syscall.SIGCHLD:
			default:
				signal.Notify(taken, sig)
			}
		}
	}()
	return t.Constructor.New(opts)
}

package gvisor

import (
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/gomaxprocs"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	"gvisor.dev/gvisor/pkg/sync"

	"github.com/crannog/crannog/internal/engine/gvisor/early"
	"github.com/crannog/crannog/internal/host/memtrim"
	"github.com/crannog/crannog/internal/host/prefault"
)

// settled is when a gVisor process has certainly started. What was switched off for its start is
// then switched on again.
const settled = 2 * time.Second

// startMemory is how much memory a gVisor process may take for itself before it
// collects garbage while it starts. It needs less than ten megabytes. The 16 MB by
// which package first has made the heap grow count too.
const startMemory = 64 << 20

// quicken removes from the start of a gVisor process what costs time and gives a sandbox nothing.
func quicken(name string) {
	// gVisor drops some 35 capabilities on all threads, one after the other,
	// and each drop wakes each thread: 20 ms of a boot with a thread for each
	// processor, of which one leaves a quarter. The kernel process sets the
	// number that the sandbox gets itself before it reads it; the file server's
	// is set here.
	processors := early.Processors
	runtime.GOMAXPROCS(1) // early has done so
	pages := programPages()
	collect := collectLater(pages, func() bool { return name == kernelArg0 && !occupied.Load() })
	switch name {
	case fileServerArg0:
		time.AfterFunc(serving, func() {
			runtime.GOMAXPROCS(processors)
			whenCalm(time.Now, recheck, func() { runtime.GOMAXPROCS(processors + places) })
		})
	case kernelArg0:
		forgoTracePoints()
		watchPlatform(collect, pages)
	}
}

// collectLater postpones garbage collection until the process has started. A process that has just
// started has next to no garbage, and collecting it costs the kernel's start 5 ms. A sandbox that
// is busy from its first moment has some. A kernel in which nothing runs yet has not started. The
// returned function postpones collection once more.
func collectLater(pages []span, waits func() bool) (again func()) {
	debug.SetGCPercent(-1) // early has done so
	percent, most := early.Percent, debug.SetMemoryLimit(startMemory)
	var watched sync.Once
	var timer *time.Timer
	timer = time.AfterFunc(settled, func() {
		if waits() {
			timer.Reset(settled)
			return
		}
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(most)
		debug.FreeOSMemory()
		letGo(pages)
		watched.Do(func() { memtrim.GiveBack(memtrim.After) })
	})
	return func() {
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(startMemory)
		timer.Reset(settled)
	}
}

// tracePoints is what guards the table of gVisor's trace points.
//
//go:linkname tracePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var tracePoints sync.Once

// forgoTracePoints keeps the table empty: naming all thousand takes 5 ms.
// Package watch asks for its points without their names. A watcher that asked
// for one by name would be refused, not left without events.
func forgoTracePoints() { tracePoints.Do(func() {}) }

// watchPlatform makes a kernel postpone garbage collection again when it makes its
// platform, as at its start. That is when a sandbox that was saved elsewhere is restored
// in it, which may be long after the start.
func watchPlatform(again func(), pages []span) {
	if systrap, err := platform.Lookup(running); err == nil {
		platform.Register(running, quickPlatform{systrap, again, pages, &atomic.Bool{}})
	}
}

type quickPlatform struct {
	platform.Constructor
	again   func()
	pages   []span
	started *atomic.Bool // a platform has been made before
}

// New implements platform.Constructor.
func (q quickPlatform) New(opts platform.Options) (platform.Platform, error) {
	q.again()
	if q.started.Swap(true) {
		occupied.Store(true)
	} else {
		whenCalm(time.Now, alone, func() { gomaxprocs.Add(places) })
		if waits(os.Args) {
			time.AfterFunc(unclaimed, func() { preheat(q.pages) })
		}
	}
	takeSignalsEarly()
	made, err := q.Constructor.New(opts)
	prefault.AfterFork()
	if err == nil {
		setProgramsBehind()
	}
	return made, err
}

// takeSignalsEarly begins to take signals while the kernel waits for its first stub. It would take
// them one by one just before the guest starts, each through another thread, for 8 ms; a signal
// that is taken already costs nothing. By then capabilities are dropped, so another thread costs
// little.
func takeSignalsEarly() {
	go func() {
		// A signal that arrives before gVisor listens is lost instead of ending the
		// process. That is harmless, because we send none except SIGKILL.
		taken := make(chan os.Signal, 1)
		for sig := syscall.Signal(1); sig < 32; sig++ {
			switch sig {
			case syscall.SIGURG, syscall.SIGPIPE, syscall.SIGCHLD:
			default:
				signal.Notify(taken, sig)
			}
		}
	}()
}

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

// startedAfter is the time after which a gVisor process has certainly started. Features that were
// disabled for the start are then enabled again.
const startedAfter = 2 * time.Second

// startMemory is how much memory a gVisor process may allocate during its start before it collects
// garbage. It needs less than ten megabytes. The 16 MB by which package first has grown the heap
// count too.
const startMemory = 64 << 20

// quicken removes work from the start of a gVisor process that a sandbox does not need.
func quicken(name string) {
	// gVisor drops some 35 capabilities on all threads, one after the other, and each drop wakes
	// each thread. That takes 20 ms of a boot with a thread for each processor, and a quarter of it
	// with one thread. The kernel process itself sets the sandbox's number of processors before it
	// reads the number. That of the file server is set here.
	processors := early.Processors
	runtime.GOMAXPROCS(1) // early has done so
	pages := programPages()
	collect := collectLater(pages, func() bool { return name == kernelArg0 && !occupied.Load() })
	switch name {
	case fileServerArg0:
		time.AfterFunc(serving, func() {
			runtime.GOMAXPROCS(processors)
			runWhenIdle(time.Now, recheck, func() { runtime.GOMAXPROCS(processors + places) })
		})
	case kernelArg0:
		forgoTracePoints()
		watchPlatform(collect, pages)
	}
}

// collectLater postpones garbage collection until the process has started. A new process has almost
// no garbage, and collecting it takes 5 ms of the kernel's start. A sandbox that is busy at once
// produces some. A kernel in which nothing runs yet counts as not started. The returned function
// postpones collection once more.
func collectLater(pages []span, waits func() bool) (again func()) {
	debug.SetGCPercent(-1) // early has done so
	percent, limit := early.Percent, debug.SetMemoryLimit(startMemory)
	var watched sync.Once
	var timer *time.Timer
	timer = time.AfterFunc(startedAfter, func() {
		if waits() {
			timer.Reset(startedAfter)
			return
		}
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
		debug.FreeOSMemory()
		unmapTouched(pages)
		watched.Do(func() { memtrim.ReleaseWhenIdle(memtrim.After) })
	})
	return func() {
		debug.SetGCPercent(-1)
		debug.SetMemoryLimit(startMemory)
		timer.Reset(startedAfter)
	}
}

// tracePoints is the sync.Once of the table of gVisor's trace points.
//
//go:linkname tracePoints gvisor.dev/gvisor/pkg/sentry/seccheck.initOnce
var tracePoints sync.Once

// forgoTracePoints keeps the table empty, because naming its thousand entries takes 5 ms. Package
// watch enables its points without their names. A watcher that requested a point by name would get
// an error rather than no events.
func forgoTracePoints() { tracePoints.Do(func() {}) }

// watchPlatform makes a kernel postpone garbage collection again when it creates its platform, as
// at its start. This happens when a sandbox that was saved elsewhere is restored in it, which may
// be long after the start.
func watchPlatform(again func(), pages []span) {
	if systrap, err := platform.Lookup(running); err == nil {
		platform.Register(running, quickPlatform{systrap, again, pages, &atomic.Bool{}})
	}
}

type quickPlatform struct {
	platform.Constructor
	again   func()
	pages   []span
	started *atomic.Bool // a platform was created before
}

// New implements platform.Constructor.
func (q quickPlatform) New(opts platform.Options) (platform.Platform, error) {
	q.again()
	if q.started.Swap(true) {
		occupied.Store(true)
	} else {
		runWhenIdle(time.Now, singleFor, func() { gomaxprocs.Add(places) })
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

// takeSignalsEarly registers the signal handlers while the kernel waits for its first stub. gVisor
// would register them one by one just before the guest starts, each through another thread, which
// takes 8 ms. Registering a signal again costs nothing. Capabilities are dropped by then, so
// another thread costs little.
func takeSignalsEarly() {
	go func() {
		// A signal that arrives before gVisor listens is lost instead of ending the process. That
		// is harmless, because we send only SIGKILL.
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

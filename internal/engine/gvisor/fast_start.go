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
	"github.com/crannog/crannog/internal/engine/gvisor/first"
	"github.com/crannog/crannog/internal/host/memtrim"
	"github.com/crannog/crannog/internal/host/prefault"
)

// startedAfter is the time after which a gVisor process has certainly started. Features that were
// disabled for the start are then enabled again.
const startedAfter = 2 * time.Second

// startMemory is how much memory a gVisor process may have during its start before it collects
// garbage. A start needs less than 10 MB, and package first has grown the heap by 16 MB.
const startMemory = 64 << 20

// speedUpStart removes work from the start of a gVisor process that a sandbox does not need.
func speedUpStart(name string) {
	// gVisor drops some 35 capabilities on all threads, one after the other, and each drop wakes
	// each thread. That takes 20 ms of a boot with a thread for each processor, and 5 ms with one
	// thread. The kernel process later sets the number of processors itself. That of the file
	// server is set here.
	processors := first.Processors
	runtime.GOMAXPROCS(1) // package first has set the same
	pages := programPages()
	postpone := collectLater(pages, func() bool { return name == kernelArg0 && !occupied.Load() })
	switch name {
	case fileServerArg0:
		time.AfterFunc(fileServerStart, func() {
			runtime.GOMAXPROCS(processors)
			runWhenIdle(time.Now, recheckPause, func() { runtime.GOMAXPROCS(processors + extraProcs) })
		})
	case kernelArg0:
		skipTracePoints()
		hookPlatform(postpone, pages)
	}
}

// collectLater postpones garbage collection until the process has started. A new process has almost
// no garbage, and collecting it takes 5 ms of the kernel's start. A sandbox that is busy at once
// produces some. A kernel in which no guest runs yet counts as not started. The returned function
// postpones collection once more.
func collectLater(pages []span, waits func() bool) (postpone func()) {
	debug.SetGCPercent(-1) // package early has set the same
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

// skipTracePoints keeps the table empty, because naming its thousand entries takes 5 ms. Package
// watch enables its points without their names. A watcher that requested a point by name would get
// an error rather than no events.
func skipTracePoints() { tracePoints.Do(func() {}) }

// hookPlatform makes a kernel postpone garbage collection whenever it creates a platform: at its
// start, and when a saved sandbox is restored in it, which may be long after the start.
func hookPlatform(postpone func(), pages []span) {
	if systrap, err := platform.Lookup(systrapName); err == nil {
		platform.Register(systrapName, hookedPlatform{systrap, postpone, pages, &atomic.Bool{}})
	}
}

// hookedPlatform is gVisor's platform with work before and after its creation.
type hookedPlatform struct {
	platform.Constructor
	postpone func()
	pages    []span
	started  *atomic.Bool // whether a platform was created before
}

// New implements platform.Constructor.
func (q hookedPlatform) New(opts platform.Options) (platform.Platform, error) {
	q.postpone()
	if q.started.Swap(true) {
		occupied.Store(true)
	} else {
		runWhenIdle(time.Now, singleProcTime, func() { gomaxprocs.Add(kernelExtraProcs()) })
		if isPrestarted(os.Args) {
			time.AfterFunc(preheatDelay, func() { preheat(q.pages) })
		}
	}
	registerSignalsEarly()
	created, err := q.Constructor.New(opts)
	prefault.AfterFork()
	if err == nil {
		raiseProgramNice()
	}
	return created, err
}

// registerSignalsEarly registers the signal handlers while the kernel waits for its first stub.
// gVisor would register them one by one just before the guest starts, each through another thread,
// which takes 8 ms. Registering a signal again costs nothing. Capabilities are dropped by then, so
// another thread costs little.
func registerSignalsEarly() {
	go func() {
		// A signal that arrives before gVisor listens is lost instead of ending the process. That
		// is harmless, because the engine sends only SIGKILL.
		signals := make(chan os.Signal, 1)
		for sig := syscall.Signal(1); sig < 32; sig++ {
			switch sig {
			case syscall.SIGURG, syscall.SIGPIPE, syscall.SIGCHLD:
			default:
				signal.Notify(signals, sig)
			}
		}
	}()
}

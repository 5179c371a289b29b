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
	pages := programPages()
	collect := collectLater(pages, func() bool { return name == kernelArg0 && !occupied.Load() })
	switch name {
	case fileServerArg0:
		time.AfterFunc(spread, func() { runtime.GOMAXPROCS(processors) })
	case kernelArg0:
		forgoTracePoints()
		watchPlatform(collect, pages)
	}
}

// collectLater leaves garbage until the process has started. One that has just
// started has next to none, and collecting it costs the kernel's start 5 ms. A
// box that is busy from its first moment has some. A kernel in which nothing
// runs yet has not started. What it returns does the same once more.
func collectLater(pages []span, waits func() bool) (again func()) {
	percent, most := debug.SetGCPercent(-1), debug.SetMemoryLimit(startMemory)
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
		watched.Do(func() { idle.GiveBack(idle.After) })
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

// watchPlatform puts what a kernel does without at its start, and once more
// when a box goes on in it that was saved elsewhere, where the kernel makes its
// platform. A kernel may have waited for that box for long.
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
	after := time.Duration(0)
	if q.started.Swap(true) {
		occupied.Store(true)
	} else {
		after = alone
		if waits(os.Args) {
			time.AfterFunc(unclaimed, func() { preheat(q.pages) })
		}
	}
	runOneMore(after)
	takeSignalsEarly()
	return q.Constructor.New(opts)
}

// oneMore is how long a kernel may run one goroutine more at once than it has
// processors: until the guest is ready, and mostly for its first command.
const oneMore = 500 * time.Millisecond

// alone is how long a kernel does without it that begins with nothing: it is
// by itself until it has started, and its start is slower with more threads.
const alone = 40 * time.Millisecond

// runOneMore spares waits of 10 to 20 ms. A goroutine that waits in a system
// call keeps its place to run in until Go's monitor, which sleeps for up to
// 10 ms, has found that out twice. While a box starts or goes on, one such call
// waits for events of the host and another for what we ask next: on two
// processors nothing could run meanwhile. Afterwards that is rare, and one place
// more makes system calls dearer by a twentieth.
func runOneMore(after time.Duration) {
	time.AfterFunc(after, func() {
		gomaxprocs.Add(1)
		time.AfterFunc(oneMore, func() { gomaxprocs.Add(-1) })
	})
}

// takeSignalsEarly begins to take signals while the kernel waits for its first
// stub. It would take them one by one just before the guest starts, each by
// way of another thread, for 8 ms; a signal that is taken already costs
// nothing. By then capabilities are dropped, so another thread costs little.
func takeSignalsEarly() {
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
}

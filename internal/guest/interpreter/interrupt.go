package interpreter

import (
	"slices"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
)

const (
	// interruptEvery is the time that code has for cleaning up before the next interrupt.
	interruptEvery = time.Second
	// forceEvery is the interval between attempts to kill the processes of the code.
	forceEvery = 100 * time.Millisecond
	// clockSlack is how much earlier than its code a process may seem to have started, because the
	// kernel counts in hundredths of a second.
	clockSlack = 100 * time.Millisecond
)

// interrupt stops code whose client has disconnected. It holds the slot until the context can be
// used again. It sends SIGINT to the worker's process group every second. If the code does not end
// in time, it kills the processes that the code started, and finally the worker, which loses the
// context's state.
func (x *session) interrupt(w *worker, e *execution) {
	pace := x.server.pace
	defer x.drain(w)
	if x.interruptUntilDone(w, e, interruptEvery, pace.interrupt, w.interrupt) {
		return
	}
	force := func() {
		w.killStarted(e.from)
		w.interrupt()
	}
	if x.lang.lateInterrupt {
		// The execution may end as soon as its processes are killed.
		force = func() {
			w.interrupt()
			w.killStarted(e.from)
		}
	}
	if x.interruptUntilDone(w, e, forceEvery, pace.force, force) {
		return
	}
	x.server.opts.Log.Debug("worker ignored an interrupt", "context", x.id, "language", x.lang.name)
	x.stop()
}

// interruptUntilDone calls act at once and then at each interval, until the execution is done, the
// worker has ended or the timeout has passed. It reports whether the execution is over.
func (x *session) interruptUntilDone(w *worker, e *execution, every, timeout time.Duration, act func()) (over bool) {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	half := time.NewTicker(every / 2)
	defer half.Stop()
	for expired := false; !expired; {
		act()
		// confirm runs in the middle between two interrupts, so that no interrupt hits it.
		for _, then := range []func(){func() { x.confirm(w, e) }, func() {}} {
			select {
			case <-half.C:
			case <-limit.C:
				expired = true
			case <-e.done:
				return true
			case <-w.exited:
				x.stop()
				return true
			case <-x.server.life.Done():
				x.stop()
				return true
			}
			// The end may have been reported before this goroutine ran again. Another interrupt
			// would hit the next execution.
			select {
			case <-e.done:
				return true
			default:
			}
			if expired {
				break
			}
			then()
		}
	}
	return false
}

// drain requests that the worker discards an interrupt that arrived when the execution had ended.
func (x *session) drain(w *worker) {
	if x.lang.lateInterrupt {
		_ = w.send(request{Drain: true}) // fails if the worker has ended
	}
}

// confirm requests a second report of the end, for languages in which an interrupt can discard the
// report. Bash drops the command that it reads or runs when a signal arrives. If that command
// reports the end of the code, bash then waits for input, and further interrupts have no effect.
func (x *session) confirm(w *worker, e *execution) {
	if x.lang.confirm == nil {
		return
	}
	text := x.lang.confirm(w.executions)
	x.server.workers.Go(func() {
		// An error means that the worker has ended. The write must not block the caller while the
		// worker does not read.
		_, _ = w.requests.Write(text)
	})
}

// isDaemonChild reports whether p descends from a daemon: an old member of the family that is no
// longer a descendant of the family's first member.
func isDaemonChild(family []census.Member, p census.Member, old func(census.Member) bool) bool {
	hasOldAncestor := false
	for range family { // limits the number of steps, even if the list has a cycle
		at := slices.IndexFunc(family, func(m census.Member) bool { return m.PID == p.Parent })
		if at <= 0 {
			return hasOldAncestor && at < 0
		}
		p = family[at]
		hasOldAncestor = hasOldAncestor || old(p)
	}
	return false
}

// interrupt sends SIGINT to the running code.
func (w *worker) interrupt() {
	// An error means that the worker has ended, which exited reports too.
	_ = w.proc.Signal(syscall.SIGINT)
}

// killStarted kills the processes of the worker's family that started after a time. These are
// children that ignore the interrupt, children that left the worker's process group (as with
// timeout and setsid), and processes whose parent has ended. It does not kill processes that
// earlier executions left in the background, nor processes that such a daemon has started.
func (w *worker) killStarted(since time.Time) {
	family, err := w.proc.Family()
	if err != nil || len(family) == 0 {
		return // the worker has ended, which exited reports too
	}
	old := func(p census.Member) bool {
		return w.started.Add(census.Between(family[0], p)).Add(clockSlack).Before(since)
	}
	for _, p := range family[1:] {
		if old(p) || isDaemonChild(family, p, old) {
			continue
		}
		// An error means that the process has already ended.
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

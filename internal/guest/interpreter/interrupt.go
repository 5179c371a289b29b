package interpreter

import (
	"slices"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
)

const (
	// interruptEvery is the time that code has to clean up before the next interrupt.
	interruptEvery = time.Second
	// forceEvery is the pause between two attempts to kill what the code started.
	forceEvery = 100 * time.Millisecond
	// clockSlack is how far the start of a process, which the kernel counts in hundredths of a
	// second, may seem to precede the code that started it.
	clockSlack = 100 * time.Millisecond
)

// interrupt stops code whose client has left, and keeps the slot until the context can be used
// again. It interrupts the worker's process group every second. If that has no effect in time, it
// kills the processes that the code has started, and at last the worker, which costs the context
// its state.
func (x *session) interrupt(w *worker, e *execution) {
	pace := x.server.pace
	if x.interrupting(w, e, interruptEvery, pace.interrupt, w.interrupt) {
		return
	}
	force := func() {
		w.killStarted(e.from)
		w.interrupt()
	}
	if x.interrupting(w, e, forceEvery, pace.force, force) {
		return
	}
	x.server.opts.Log.Debug("worker ignored an interrupt", "context", x.id, "language", x.lang.name)
	x.stop()
}

// interrupting calls act at once and after every interval, until the execution is done, the worker
// has ended or the limit has passed. It reports whether the execution is over.
func (x *session) interrupting(w *worker, e *execution, every, most time.Duration, act func()) (over bool) {
	limit := time.NewTimer(most)
	defer limit.Stop()
	half := time.NewTicker(every / 2)
	defer half.Stop()
	for late := false; !late; {
		act()
		// Halfway between two interrupts, so that neither hits it.
		for _, then := range []func(){func() { x.confirm(w, e) }, func() {}} {
			select {
			case <-half.C:
			case <-limit.C:
				late = true
			case <-e.done:
				return true
			case <-w.exited:
				x.stop()
				return true
			case <-x.server.life.Done():
				x.stop()
				return true
			}
			// The end may have come while we waited for a processor: another interrupt would hit
			// the next cell.
			select {
			case <-e.done:
				return true
			default:
			}
			if late {
				break
			}
			then()
		}
	}
	return false
}

// confirm asks a worker to report the end again, if an interrupt can discard the report. Bash drops
// the command that it reads or runs when a signal comes. If that is the one that reports the end of
// the code, bash then waits for input, and no further interrupt could bring the report back.
func (x *session) confirm(w *worker, e *execution) {
	if x.lang.confirm == nil {
		return
	}
	text := x.lang.confirm(w.executions)
	x.server.workers.Go(func() {
		// It fails only when the worker is gone, and must not block the caller
		// while the worker does not read.
		_, _ = w.requests.Write(text)
	})
}

// daemons reports whether a member of a family descends from one that is old and does not descend
// from the family's first member any more.
func daemons(family []census.Member, p census.Member, old func(census.Member) bool) bool {
	byOld := false
	for range family { // the greatest possible number of steps, whatever the kernel lists
		at := slices.IndexFunc(family, func(m census.Member) bool { return m.PID == p.Parent })
		if at <= 0 {
			return byOld && at < 0
		}
		p = family[at]
		byOld = byOld || old(p)
	}
	return false
}

// interrupt asks the running code to stop.
func (w *worker) interrupt() {
	// An error means that the worker is gone, which exited reports as well.
	_ = w.proc.Signal(syscall.SIGINT)
}

// killStarted kills the processes of the worker's family that were started since a time: children
// that ignore the interrupt, that have left the worker's process group as those of timeout and
// setsid do, or that are not its children any more. Processes that earlier executions left in the
// background stay, and so do those that such a daemon has started.
func (w *worker) killStarted(since time.Time) {
	family, err := w.proc.Family()
	if err != nil || len(family) == 0 {
		return // the worker is gone, which exited reports as well
	}
	old := func(p census.Member) bool {
		return w.began.Add(census.Between(family[0], p)).Add(clockSlack).Before(since)
	}
	for _, p := range family[1:] {
		if old(p) || daemons(family, p, old) {
			continue
		}
		// An error means that it has ended by itself.
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/engine/wasm/quickjs"
)

// drainTime is how long the worker waits for a late interrupt, which it then discards.
const drainTime = 100 * time.Millisecond

// loop runs the code of requests and timers. Only one piece of code runs at a time.
func (w *worker) loop() error {
	for {
		if w.host.ended {
			return nil
		}
		wait, err := w.poll()
		if err != nil {
			return err
		}
		if w.skip != nil && wait > 0 {
			w.skip(wait)
			wait = 0
		}
		if done, err := w.next(wait); done || err != nil {
			return err
		}
	}
}

// next waits for a request, an interrupt, or a timer, unless wait is negative.
func (w *worker) next(wait time.Duration) (done bool, err error) {
	var timer <-chan time.Time
	if wait >= 0 {
		timer = time.After(wait)
	}
	select {
	case line, ok := <-w.lines:
		if !ok {
			return true, nil
		}
		return false, w.feed(line)
	case <-w.interrupt:
		// No code runs, so it waits for a promise.
		w.vm.ForgetInterrupt()
		return false, w.run("interrupted")
	case <-timer:
		return false, nil
	}
}

// feed passes on a request.
func (w *worker) feed(line string) error {
	const drain = `{"n":0,"code":"","drain":true}`
	if line == drain {
		time.Sleep(drainTime)
		w.vm.ForgetInterrupt()
		select {
		case <-w.interrupt:
		default:
		}
		return nil
	}
	return w.run("feed", line)
}

// poll runs the timers that are due, and returns the time until the next one. It is negative if
// there is none.
func (w *worker) poll() (time.Duration, error) {
	for {
		text, err := w.functions["poll"].Call()
		if err := w.settle(err); err != nil {
			return 0, err
		}
		if err != nil {
			continue
		}
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("the worker's program: %w", err)
		}
		if ms != 0 {
			return time.Duration(ms * float64(time.Millisecond)), nil
		}
	}
}

// run calls a function of the worker's program, and then the jobs of its promises.
func (w *worker) run(name string, arguments ...string) error {
	_, err := w.functions[name].Call(arguments...)
	return w.settle(err)
}

// settle runs all jobs. Errors of the code end only that code; every other error ends the worker,
// because the state of the instance is then unknown.
func (w *worker) settle(err error) error {
	for {
		var thrown *quickjs.Error
		switch {
		case errors.Is(err, quickjs.ErrInterrupted):
			select {
			case <-w.interrupt:
			default:
			}
			_, err = w.functions["interrupted"].Call()
			continue
		case errors.As(err, &thrown) && thrown.OutOfMemory():
			// A promise may have been lost, so that the request would never end.
			return thrown
		case errors.As(err, &thrown):
			_, _ = fmt.Fprintln(os.Stderr, "Uncaught", thrown.Text) // the reader may be gone
		case err != nil:
			return err
		}
		if err = w.vm.RunJobs(); err != nil {
			continue
		}
		texts, err := w.vm.Unhandled()
		for _, text := range texts {
			_, _ = fmt.Fprintln(os.Stderr, "Uncaught", text)
		}
		return err
	}
}

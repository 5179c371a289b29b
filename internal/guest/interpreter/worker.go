package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// listener receives a worker's output and messages during one execution.
type listener interface {
	text(kind string, b []byte)
	message(m message)
}

// worker is one process that executes code.
type worker struct {
	lang     *language
	proc     Process
	started  time.Time // time just after the start of proc, by the wall clock
	requests *os.File
	control  *os.File
	acks     *os.File
	outputs  []*output

	// ready is closed when the worker can accept its first request. lost is closed when it sends no
	// more messages, because it ended, was replaced by another program or violated the protocol.
	// exited is closed when its process has ended.
	ready  chan struct{}
	lost   chan struct{}
	exited chan struct{}
	exit   Exit // valid after exited

	mu       sync.Mutex
	listener listener // listener of the current execution, or nil

	// Only the holder of the slot may use the fields below.
	executions int
	env        map[string]string // variables of the sandbox that the worker knows
	dir        string            // directory in which it was started or to which it was moved
	notified   renewalCounts     // renewals of the sandbox that the worker knows
	pending    []byte            // notifications that precede the next request
}

// startWorker starts a worker and waits until it is ready.
func (s *Server) startWorker(ctx context.Context, lang *language, dir string) (*worker, error) {
	// Read this before the variables. If the variables change in between, the change is sent with
	// the next request.
	known := s.renewalState()
	env := s.opts.Env()
	program, err := s.program(ctx, lang, env)
	if err != nil {
		return nil, err
	}
	defer closeAll(program.Files...)
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	w := &worker{
		lang: lang, env: env, dir: dir, notified: known,
		ready: make(chan struct{}), lost: make(chan struct{}), exited: make(chan struct{}),
	}
	child, err := w.open()
	if err != nil {
		return nil, fmt.Errorf("pipes for a %s worker: %w", lang.name, err)
	}
	w.proc, err = s.opts.Starter.Start(child.command(program, dir, env))
	w.started = time.Now().Round(0) // measured after the start, so that children do not seem older than they are
	child.close()
	if err != nil {
		w.closePipes()
		return nil, startError(lang, dir, err)
	}
	s.run(w)
	return w, s.awaitReady(ctx, w)
}

// run starts the goroutines that serve the worker until it ends.
func (s *Server) run(w *worker) {
	for _, o := range w.outputs {
		s.workers.Go(o.readAll)
	}
	s.workers.Go(w.listen)
	s.workers.Go(func() {
		w.exit = w.proc.Wait()
		close(w.exited)
	})
	s.workers.Go(func() {
		// A write fails as soon as the worker has ended. Then it never becomes ready, and
		// awaitReady reports the error.
		_, _ = w.requests.Write(w.lang.hello())
	})
}

// awaitReady waits for the first message. If it returns an error, the worker has been stopped.
func (s *Server) awaitReady(ctx context.Context, w *worker) error {
	limit := s.pace.start
	if w.lang.slow {
		limit *= 3
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-w.lost:
		w.kill()
		err = fault.Newf(fault.Unavailable, "worker_not_started",
			"The %s worker %s before it was ready.", w.lang.name, w.exit)
	case <-timer.C:
		err = fault.Newf(fault.Timeout, "worker_not_started",
			"The %s worker was not ready after %s.", w.lang.name, limit)
	case <-s.life.Done():
		err = errClosed
	case <-ctx.Done():
		err = fault.New(fault.Canceled, "canceled", "The request was canceled.")
	}
	w.kill()
	return err
}

// listen passes on the worker's messages until there are no more.
func (w *worker) listen() {
	defer close(w.lost)
	in := newMessages(w.control)
	for {
		m, err := in.next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				// Data after an invalid line has no meaning. An error of Signal means that the
				// worker has already ended.
				_ = w.proc.Signal(syscall.SIGKILL)
			}
			return
		}
		if m.Type == "ready" {
			w.setReady()
			continue
		}
		w.deliver(m)
	}
}

// setReady discards the output of the interpreter's start and reports that the worker is ready.
func (w *worker) setReady() {
	select {
	case <-w.ready: // code forged a second message
	default:
		w.drain()
		close(w.ready)
	}
}

// deliver passes on a message after all text that was written before it.
func (w *worker) deliver(m message) {
	w.drain()
	w.mu.Lock()
	if w.listener != nil {
		w.listener.message(m)
	}
	w.mu.Unlock()
	if m.Ack {
		// An error means that the worker has ended.
		_, _ = w.acks.Write([]byte{1})
	}
}

func (w *worker) drain() {
	for _, o := range w.outputs {
		o.drain()
	}
}

// attach sets the listener. After attach(nil) has returned, the previous listener is not called any
// more.
func (w *worker) attach(l listener) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listener = l
}

func (w *worker) text(kind string, b []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		w.listener.text(kind, b)
	}
}

// send sends a request to the worker.
func (w *worker) send(r request) error {
	w.pending = append(w.pending, w.lang.encode(r)...)
	return w.flush()
}

// flush writes all pending notifications to the worker.
func (w *worker) flush() error {
	data := w.pending
	w.pending = nil
	_, err := w.requests.Write(data)
	return err
}

// kill ends the worker and its process group, and waits until the worker is reaped. It may be
// called more than once.
func (w *worker) kill() {
	select {
	case <-w.exited:
	default:
		_ = w.proc.Signal(syscall.SIGKILL) // an error means that the worker has ended
		<-w.exited
	}
	w.closePipes()
}

// alive reports whether the worker can accept a request.
func (w *worker) alive() bool {
	select {
	case <-w.lost:
		return false
	case <-w.exited:
		return false
	default:
		return true
	}
}

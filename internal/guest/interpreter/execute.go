package interpreter

import (
	"context"
	"fmt"
	"time"
)

// lastMessagesTimeout limits the wait for the last messages of a worker that has ended. They are
// already in the pipe.
const lastMessagesTimeout = 200 * time.Millisecond

// execution is one run of code. It passes the worker's messages on to the client and records how
// the run ended.
type execution struct {
	out  *stream
	n    int
	from time.Time     // start of the code, by the wall clock
	done chan struct{} // closed when the worker is finished with the code

	failed bool // an error line was written; the protocol allows one
}

// text implements listener.
func (e *execution) text(kind string, b []byte) { e.out.text(kind, b) }

// message implements listener. Calls never overlap.
func (e *execution) message(m message) {
	if m.N != e.n {
		return
	}
	switch m.Type {
	case "result":
		e.out.result(m.result)
	case "error":
		e.fail(m.execError)
	case "done":
		if m.Status != 0 {
			e.fail(exitError(m.Status))
		}
		close(e.done)
		e.n = -1 // so that a second message does not close it again
	}
}

// fail writes an error line, unless one was written before.
func (e *execution) fail(err execError) {
	if !e.failed {
		e.failed = true
		e.out.fail(err)
	}
}

// exitError converts a shell's exit status to an error for the client.
func exitError(status int) execError {
	text := fmt.Sprintf("exit status %d", status)
	return execError{Name: "ExitError", Value: text, Traceback: text}
}

// execute runs code and writes its output and result to the client. If it returns an error, nothing
// ran.
func (x *session) execute(ctx context.Context, code string, env map[string]string, out *stream) error {
	cutOff := x.server.cutOffChannel()
	keepalive := func() time.Duration { return out.keepalive(x.server.pace.keepalive) }
	if err := x.acquire(ctx, keepalive); err != nil {
		return err
	}
	defer x.release()
	w, err := x.liveWorker(ctx)
	if err != nil {
		return err
	}
	w.executions++
	e := &execution{out: out, n: w.executions, from: time.Now().Round(0), done: make(chan struct{})}
	aborted := x.allowAbort()
	defer x.forbidAbort()
	out.count(e.n)
	w.attach(e)
	defer w.attach(nil)
	r := request{N: e.n, Code: code, Env: env, Language: x.lang.name}
	x.server.workers.Go(func() {
		// An error means that the worker has ended, which follow detects. The goroutine ensures
		// that a worker that does not read cannot block this.
		_ = w.send(r)
	})
	x.follow(client{ctx.Done(), cutOff}, w, e, aborted)
	return nil
}

// allowAbort allows interruptWith to end the execution.
func (x *session) allowAbort() <-chan execError {
	reason := make(chan execError, 1)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.abort = func(e execError) {
		select {
		case reason <- e:
		default: // the execution is already being aborted
		}
	}
	return reason
}

// forbidAbort is called after the end of the execution.
func (x *session) forbidAbort() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.abort = nil
}

// client is the client that waits for an execution. left is closed when the client has
// disconnected. cutOff is closed before that if the sandbox closed the connection.
type client struct{ left, cutOff <-chan struct{} }

// wasCutOff reports whether the sandbox closed the client's connection.
func (c client) wasCutOff() bool {
	select {
	case <-c.cutOff:
		return true
	default:
		return false
	}
}

// follow waits until the execution ends for any reason.
func (x *session) follow(c client, w *worker, e *execution, aborted <-chan execError) {
	keepalive := time.NewTimer(x.server.pace.keepalive)
	defer keepalive.Stop()
	for {
		select {
		case <-e.done:
			w.finish(e, nil)
			return
		case <-w.exited:
			x.handleExit(w, e)
			return
		case reason := <-aborted:
			w.finish(e, &reason)
			x.stop()
			return
		case <-c.left:
			e.out.discard()
			if c.wasCutOff() {
				c.left = nil
				continue
			}
			x.interrupt(w, e)
			return
		case <-x.server.life.Done():
			w.finish(e, &execError{Name: "ExecutionAborted", Value: "The code interpreter is shutting down."})
			x.stop()
			return
		case <-keepalive.C:
			keepalive.Reset(e.out.keepalive(x.server.pace.keepalive))
		}
	}
}

// finish writes an error, unless reason is nil, and the last line of the answer.
func (w *worker) finish(e *execution, reason *execError) {
	w.attach(nil)
	if reason != nil {
		e.fail(*reason)
	}
	e.out.end()
}

// handleExit handles a worker that ended during an execution. Its last output is still in the
// pipes.
func (x *session) handleExit(w *worker, e *execution) {
	// A process that the code started may hold the pipe open, so the wait for the end of the
	// messages is limited.
	select {
	case <-w.lost:
	case <-time.After(lastMessagesTimeout):
	}
	w.drain()
	w.attach(nil)
	select {
	case <-e.done:
	default:
		e.fail(w.endError())
	}
	e.out.end()
	x.stop()
}

// endError returns the error for a worker that ended during an execution.
func (w *worker) endError() execError {
	if w.lang.exits && w.exit.Signal == 0 {
		return exitError(w.exit.Code)
	}
	text := fmt.Sprintf("The %s worker %s. Its state is lost; the next execution starts a new one.", w.lang.name, w.exit)
	return execError{Name: "UnexpectedEndOfExecution", Value: text, Traceback: text}
}

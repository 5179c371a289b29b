package mcpserver

import (
	"context"
	"errors"
	"time"
)

// exit is what is known when a command itself has exited.
type exit struct {
	code int
	at   time.Time
	// left is set if a process that it started in the background was then still running.
	left bool
}

// Limits of the time for output after a command has exited. Later output comes from processes
// that the command left in the background.
const (
	minOutputGrace = 100 * time.Millisecond
	maxOutputGrace = 2 * time.Second
	// endGrace applies if the shell knows of no process that it left. Then the output ends at once,
	// however slow the machine is, except if a process has detached itself and holds it open.
	endGrace = 5 * time.Second
)

// outputGrace returns the remaining part of that time after a command has exited. If processes are
// left, it grows with the command's duration, because on a slow machine the rest of the output is
// late too.
func (j *job) outputGrace() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	grace := endGrace
	if j.exit.left {
		grace = min(max(minOutputGrace, j.exit.at.Sub(j.started)/2), maxOutputGrace)
	}
	return grace - time.Since(j.exit.at)
}

// wait waits until a job has ended, or has exited and left a process in the background, at most
// for the given time. If the call is canceled, wait ends the command, because the client wants it
// to stop.
func (j *job) wait(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	exited := j.exited
	for {
		select {
		case <-j.done:
			return nil
		case <-exited:
			exited = nil
			timer.Reset(j.outputGrace())
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return errors.Join(ctx.Err(), j.kill())
		}
	}
}

// awaitExit waits briefly for the end of a command that has exited.
func (j *job) awaitExit() {
	if _, exited := j.exitCode(); !exited || j.ended() {
		return
	}
	timer := time.NewTimer(j.outputGrace())
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
	}
}

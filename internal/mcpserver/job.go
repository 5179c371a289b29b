package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
)

// job is a running or ended command in a sandbox.
type job struct {
	id       int
	what     string // the command, in one line
	started  time.Time
	combined *outputBuffer // all output, in order of arrival
	out      *outputBuffer
	err      *outputBuffer
	// input is nil if the command reads no input from the Tenant.
	input io.WriteCloser
	// feeding contains a token while input is sent, so that only one unread piece of input is in
	// memory.
	feeding chan struct{}
	kill    func() error
	done    chan struct{} // closed at the end of all its output
	// exited is closed when the command itself has exited and its exit code is known. Processes
	// that it left in the background may still print.
	exited chan struct{}

	mu   sync.Mutex
	exit exit

	// The fields below are set before done is closed.
	fail   error
	finish time.Time

	pictures jobPictures // guarded by Tenant.pictures
}

// streamBytes is how much of the beginning and of the end of one stream is stored, for a result
// with separate streams.
const streamBytes = 4 * maxText / 2

const (
	// maxJobs bounds the running commands in a sandbox.
	maxJobs = 32
	// maxKept bounds the stored output of ended commands in a sandbox.
	maxKept = 16 << 20
)

func (j *job) ended() bool {
	select {
	case <-j.done:
		return true
	default:
		return false
	}
}

// setExit records that the command has exited. Only the first call has an effect.
func (j *job) setExit(code int, left bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.exited:
	default:
		j.exit = exit{code: code, at: time.Now(), left: left}
		close(j.exited)
	}
}

// exitCode returns the command's exit code once it has exited.
func (j *job) exitCode() (int, bool) {
	select {
	case <-j.exited:
	default:
		return 0, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.exit.code, true
}

// finished must be called once, when the job has ended.
func (j *job) finished(code int, err error) {
	j.fail, j.finish = err, time.Now()
	j.setExit(code, false)
	close(j.done)
}

func omittedNote(n int64) string { return fmt.Sprintf("\n… %d bytes omitted …\n", n) }

// begin registers a job and assigns its number.
func (b *agentSandbox) begin(what string) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	running := 0
	for _, j := range b.jobs {
		if !j.ended() {
			running++
		}
	}
	if running >= maxJobs {
		return nil, fault.Newf(fault.Exhausted, "too_many_processes", "%d commands are already running", running).
			WithHint("the tool process with action list shows them, and with action kill ends one")
	}
	b.trim()
	b.next++
	j := &job{
		id: b.next, what: oneLine(what), started: time.Now(), done: make(chan struct{}), exited: make(chan struct{}), kill: func() error { return nil },
		feeding:  make(chan struct{}, 1),
		combined: newOutputBuffer(keptBytes), out: newOutputBuffer(streamBytes), err: newOutputBuffer(streamBytes),
	}
	b.jobs[j.id] = j
	return j, nil
}

// size returns how much output of the job is in memory. Pictures are counted separately.
func (j *job) size() (kept int) {
	for _, t := range []*outputBuffer{j.combined, j.out, j.err} {
		_, n := t.size()
		kept += n
	}
	return kept
}

// trim drops the oldest output of ended commands. The caller holds b.mu.
func (b *agentSandbox) trim() {
	kept := 0
	for _, j := range b.jobs {
		kept += j.size()
	}
	ids := make([]int, 0, len(b.jobs))
	for id := range b.jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		if kept <= maxKept && len(b.jobs) <= 4*maxJobs {
			return
		}
		if j := b.jobs[id]; j.ended() {
			kept -= j.size()
			delete(b.jobs, id)
			b.tenant.pictures.forgetJob(j)
		}
	}
}

// job returns the job with a number.
func (b *agentSandbox) job(id int) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[id]; j != nil {
		return j, nil
	}
	return nil, fault.Newf(fault.NotFound, "process_not_found", "process %d does not exist, or its output is no longer stored", id).
		WithHint("the tool process with action list shows all")
}

// drop removes a job whose output will not be read.
func (b *agentSandbox) drop(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, j.id)
	b.tenant.pictures.forgetJob(j)
}

// command describes how to run a program.
type command struct {
	what  string // what the program is shown as
	argv  []string
	stdin string
	// keepInput leaves the input open for later writes.
	keepInput bool
	// name is the text that the shell prints at its end, "" if it is not a shell.
	name string
}

// run starts a program that outlives the call.
func (b *agentSandbox) run(c command) (*job, error) {
	j, err := b.begin(c.what)
	if err != nil {
		return nil, err
	}
	cmd := b.sb.CommandContext(b.tenant.jobContext(), c.argv[0], c.argv[1:]...)
	out, errs := &stream{to: io.MultiWriter(j.combined, j.out), end: c.name, job: j}, &stream{to: io.MultiWriter(j.combined, j.err), end: c.name, job: j}
	cmd.Stdout, cmd.Stderr = out, errs
	switch {
	case c.keepInput:
		if j.input, err = cmd.StdinPipe(); err != nil {
			return nil, err
		}
	case c.stdin != "":
		cmd.Stdin = bytes.NewReader([]byte(c.stdin))
	}
	if err := cmd.Start(); err != nil {
		b.drop(j)
		return nil, err
	}
	j.kill = func() error { return cmd.Signal(syscall.SIGKILL) }
	if c.keepInput && c.stdin != "" {
		j.feeding <- struct{}{}
		j.send(c.stdin, false) // the program may read none of it
	}
	go func() {
		err := cmd.Wait()
		out.flush()
		errs.flush()
		if exit, ok := errors.AsType[*crannog.ExitError](err); ok {
			j.finished(exit.ExitCode(), nil)
			return
		}
		j.finished(0, err)
	}()
	return j, nil
}

// jobContext returns a context that does not end. A program ends when it is killed or with its
// sandbox, and not when this process ends.
func (d *Tenant) jobContext() context.Context { return context.Background() }

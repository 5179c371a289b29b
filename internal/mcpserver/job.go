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

// job is something that runs in a sandbox, or ran.
type job struct {
	id      int
	what    string // one line of it
	started time.Time
	both    *tape // all output, as it came
	out     *tape
	err     *tape
	// input is nil if it reads none of ours.
	input io.WriteCloser
	// feeding holds a token while something is sent to it: one after the other,
	// so that only one unread input is in memory.
	feeding chan struct{}
	kill    func() error
	done    chan struct{} // closed at the end of all its output
	// back is closed when the command itself has returned; what it left in the
	// background may print on. The code is known then.
	back chan struct{}

	mu     sync.Mutex
	code   int
	backAt time.Time

	// Set before done is closed.
	fail   error
	finish time.Time

	wall wall // guarded by the desk's pictures
}

// streamBytes is what is kept of the beginning and of the end of one stream,
// for a result that has them apart.
const streamBytes = 4 * maxText / 2

const (
	// maxJobs is how many things may run in a sandbox at once.
	maxJobs = 32
	// maxKept is how much output of what has ended is kept for a sandbox.
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

// returned notes that the command has returned. The first word counts.
func (j *job) returned(code int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.back:
	default:
		j.code, j.backAt = code, time.Now()
		close(j.back)
	}
}

// exit returns the command's code once it has returned.
func (j *job) exit() (int, bool) {
	select {
	case <-j.back:
	default:
		return 0, false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.code, true
}

// finished must be called once, when the job has ended.
func (j *job) finished(code int, err error) {
	j.fail, j.finish = err, time.Now()
	j.returned(code)
	close(j.done)
}

func leftOut(n int64) string { return fmt.Sprintf("\n… %d bytes were not kept …\n", n) }

// begin makes room for a job and numbers it.
func (b *box) begin(what string) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	running := 0
	for _, j := range b.jobs {
		if !j.ended() {
			running++
		}
	}
	if running >= maxJobs {
		return nil, fault.Newf(fault.Exhausted, "too_many_processes", "%d commands run already", running).
			WithHint("process with action list shows them, action kill ends one")
	}
	b.trim()
	b.next++
	j := &job{
		id: b.next, what: oneLine(what), started: time.Now(), done: make(chan struct{}), back: make(chan struct{}), kill: func() error { return nil },
		feeding: make(chan struct{}, 1),
		both:    newTape(keptBytes), out: newTape(streamBytes), err: newTape(streamBytes),
	}
	b.jobs[j.id] = j
	return j, nil
}

// size is how much output of the job is in memory. Its pictures are counted
// with those of all others.
func (j *job) size() (kept int) {
	for _, t := range []*tape{j.both, j.out, j.err} {
		_, n := t.size()
		kept += n
	}
	return kept
}

// trim forgets the oldest output of what has ended. b.mu must be held.
func (b *box) trim() {
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
			b.desk.pictures.forgetJob(j)
		}
	}
}

// job finds what a number stands for.
func (b *box) job(id int) (*job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j := b.jobs[id]; j != nil {
		return j, nil
	}
	return nil, fault.Newf(fault.NotFound, "process_not_found", "there is no process %d, or its output is not kept any more", id).
		WithHint("process with action list shows what there is")
}

// drop removes a job whose output will not be asked for.
func (b *box) drop(j *job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.jobs, j.id)
	b.desk.pictures.forgetJob(j)
}

// command says how a program runs.
type command struct {
	what  string
	argv  []string
	stdin string
	// keepInput leaves the input open for more.
	keepInput bool
	// name is what the shell says at its end, "" if it is no shell.
	name string
}

// run starts a program, whose life is not that of the call that starts it.
func (b *box) run(c command) (*job, error) {
	j, err := b.begin(c.what)
	if err != nil {
		return nil, err
	}
	cmd := b.sb.CommandContext(b.desk.life(), c.argv[0], c.argv[1:]...)
	out, errs := &stream{to: io.MultiWriter(j.both, j.out), end: c.name, job: j}, &stream{to: io.MultiWriter(j.both, j.err), end: c.name, job: j}
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
		j.send(c.stdin, false) // it may read none of it
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

// life is a context that does not end: a program ends by a kill or with its
// sandbox, and not because we do.
func (d *Desk) life() context.Context { return context.Background() }

// Bounds of how long output may come after a command has returned. What comes
// later is of what it left in the background.
const (
	lastWords     = 100 * time.Millisecond
	mostLastWords = 2 * time.Second
)

// lastWords is what is left of that time after a command has returned. It goes
// by how long the command took: where everything is slow, the rest of its
// output is, too.
func (j *job) lastWords() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return min(max(lastWords, j.backAt.Sub(j.started)/2), mostLastWords) - time.Since(j.backAt)
}

// wait waits until a job has ended, or has returned and left something in the
// background, for at most a time. A call that is given up ends what it waits
// for: a client that cancels wants the command to stop.
func (j *job) wait(ctx context.Context, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	back := j.back
	for {
		select {
		case <-j.done:
			return nil
		case <-back:
			back = nil
			timer.Reset(j.lastWords())
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return errors.Join(ctx.Err(), j.kill())
		}
	}
}

// settle gives a command that has returned a moment for its end.
func (j *job) settle() {
	if _, back := j.exit(); !back || j.ended() {
		return
	}
	timer := time.NewTimer(j.lastWords())
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
	}
}

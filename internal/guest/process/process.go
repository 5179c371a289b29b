package process

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/lineage"
)

// drainGrace is how long to wait for the output of a process that was made to end. Its children may
// hold the pipes open for ever; those that got the signal too have this long for their last output.
const drainGrace = 100 * time.Millisecond

// process is one program that was started here.
type process struct {
	pid       int
	mark      lineage.Mark // the mark of all its descendants
	tag       *string
	config    *pb.ProcessConfig
	startedAt time.Time

	input  *input // nil without a stdin
	tty    *terminal
	output output
	pipes  []*os.File // the ends that pumps read
	pumps  sync.WaitGroup

	// delay limits how long to wait for output after the process itself has ended. Zero waits as
	// long as the output is held open.
	delay time.Duration

	expired atomic.Bool // its time was up
	done    chan struct{}
	endedAt time.Time // set before it is retired

	mu     sync.Mutex
	gone   bool // the program itself has ended
	over   bool // and so has its output
	ending bool // it was signalled: do not wait for other holders of its pipes
	timer  *time.Timer
}

func (p *process) matches(sel *pb.ProcessSelector) bool {
	switch s := sel.GetSelector().(type) {
	case *pb.ProcessSelector_Pid:
		return int64(s.Pid) == int64(p.pid)
	case *pb.ProcessSelector_Tag:
		return p.tag != nil && *p.tag == s.Tag
	}
	return false
}

func (p *process) info() *pb.ProcessInfo {
	return &pb.ProcessInfo{Config: p.config, Pid: uint32(p.pid), Tag: p.tag}
}

// signal sends sig to the process and its group, and to all others of the command if the signal
// reachesAll. It fails with ESRCH if none of them is left.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return syscall.ESRCH // another process may have the number by now
	}
	var family []census.Member
	if ends(sig) {
		p.ending = true
		family = p.family() // before the signal: afterwards parents are gone
		g := gather(family, p.pid, sig)
		defer func() { go g.follow() }()
	}
	err := p.signalGroup(family, sig)
	if reachesAll(sig) {
		if outside(family, p.pid, sig) {
			err = nil
		}
		if sig == syscall.SIGKILL {
			defer func() { go sweep(p.mark) }()
		}
	}
	if p.gone && p.ending {
		p.hurry()
	}
	return err
}

// signalGroup signals the command's process group. Once the command itself is gone and no process
// with its mark is in the group, another group may have the number.
func (p *process) signalGroup(family []census.Member, sig syscall.Signal) error {
	if p.gone && p.mark != lineage.None && !slices.ContainsFunc(family, func(m census.Member) bool { return m.Group == p.pid }) {
		return syscall.ESRCH
	}
	return syscall.Kill(-p.pid, sig)
}

// ends reports whether a signal asks the process to end. Others, such as that of a window's size,
// do not change how the end is awaited.
func ends(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// kill kills all processes of the command. It is not an error if they are gone already.
func (p *process) kill() { _ = p.signal(syscall.SIGKILL) }

// expire kills the process because its time is up, unless it is over.
func (p *process) expire() {
	p.mu.Lock()
	over := p.over
	if !over {
		p.expired.Store(true) // before the kill, so that the end is reported as a timeout
	}
	p.mu.Unlock()
	if !over {
		p.kill()
	}
}

// limit ends the process after d. Time during which the sandbox was saved does not count: after a
// restore the clock has jumped, and a timer for all of d would fire at once. So d is counted in
// steps.
func (p *process) limit(d time.Duration) { p.step(d, max(d/16, time.Second)) }

// step counts one step of the remaining time.
func (p *process) step(left, step time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	step = min(step, left)
	began := time.Now()
	p.timer = time.AfterFunc(step, func() {
		if left := charge(left, step, time.Since(began)); left > 0 {
			p.step(left, step)
		} else {
			p.expire()
		}
	})
}

// charge returns what is left after a step. A step that took far longer than planned costs nothing,
// because the sandbox was saved, or its host suspended, during it.
func charge(left, step, took time.Duration) time.Duration {
	if took > 2*step+time.Second {
		return left
	}
	return left - step
}

// pump starts to pass on the output.
func (p *process) pump() {
	show := func(f *os.File, size int, wrap func([]byte) *pb.ProcessEvent) {
		p.pumps.Go(func() { p.output.pump(f, size, wrap) })
	}
	if p.tty != nil {
		show(p.pipes[0], ttyChunk, ttyEvent)
		return
	}
	show(p.pipes[0], pipeChunk, stdoutEvent)
	show(p.pipes[1], pipeChunk, stderrEvent)
}

// hurry makes the pumps stop soon. p.mu must be held.
func (p *process) hurry() { p.stopPumps(drainGrace) }

// stopPumps makes the pumps stop after a time. p.mu must be held.
func (p *process) stopPumps(after time.Duration) {
	for _, f := range p.pipes {
		// The pumps may have closed it, as intended.
		_ = f.SetReadDeadline(time.Now().Add(after))
	}
}

// watch waits for the process and the end of its output, and then notifies all listeners. It calls
// retire before that, so that a listener that gets the end does not find the process among the
// running ones.
func (p *process) watch(exit <-chan syscall.WaitStatus, retire func(*process)) {
	status := <-exit
	if p.tty != nil {
		p.tty.release()
	}
	p.mu.Lock()
	p.gone = true
	// The kernel hangs up a terminal when its session leader ends, so no more output comes from it.
	switch {
	case p.ending || p.tty != nil:
		p.hurry()
	case p.delay > 0:
		p.output.detach.Store(true)
		p.stopPumps(p.delay)
	}
	p.mu.Unlock()
	p.pumps.Wait()
	p.mu.Lock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	if p.input != nil {
		p.input.close()
	}
	p.endedAt = time.Now()
	retire(p)
	p.output.finish(endEvent(status))
	close(p.done)
}

// endEvent describes how a process ended.
func endEvent(status syscall.WaitStatus) *pb.ProcessEvent {
	end := &pb.ProcessEvent_EndEvent{Exited: status.Exited()}
	if status.Exited() {
		end.ExitCode = int32(status.ExitStatus())
		end.Status = "exit status " + strconv.Itoa(status.ExitStatus())
	} else {
		end.ExitCode = -1
		end.Status = "signal: " + status.Signal().String()
		if status.CoreDump() {
			end.Status += " (core dumped)"
		}
	}
	if end.ExitCode != 0 {
		end.Error = &end.Status
	}
	return &pb.ProcessEvent{Event: &pb.ProcessEvent_End{End: end}}
}

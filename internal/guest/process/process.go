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

// drainGrace is how long to wait for the output of a process that was ended. Its children may hold
// the pipes open for ever, but may still write their last output within this time.
const drainGrace = 100 * time.Millisecond

// process is one program that the service started.
type process struct {
	pid       int
	mark      lineage.Mark // the mark of all its descendants
	tag       *string
	config    *pb.ProcessConfig
	startedAt time.Time

	input  *input // nil without a stdin
	tty    *terminal
	output output
	pipes  []*os.File     // the guest's ends of the output, which pumps read
	pumps  sync.WaitGroup // the goroutines that pass on the output

	// delay limits how long to wait for output after the process has ended. Zero means no limit.
	delay time.Duration

	expired atomic.Bool // it was killed at its time limit
	done    chan struct{}
	endedAt time.Time // set before the process is moved to the ended ones

	mu     sync.Mutex
	gone   bool // the program itself has ended
	over   bool // the program and its output have ended
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

// signal sends sig to the process group, and also to all other processes of the command if
// reachesAll. It returns ESRCH if none of them exists.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return syscall.ESRCH // the kernel may have reused the PID
	}
	var family []census.Member
	if isFatal(sig) {
		p.ending = true
		family = p.family() // before the signal, which may end parents
		g := newGroup(family, p.pid, sig)
		defer func() { go g.follow() }()
	}
	err := p.signalGroup(family, sig)
	if reachesAll(sig) {
		if signalOutside(family, p.pid, sig) {
			err = nil
		}
		if sig == syscall.SIGKILL {
			defer func() { go killFamily(p.mark) }()
		}
	}
	if p.gone && p.ending {
		p.stopPumpsSoon()
	}
	return err
}

// signalGroup signals the command's process group. Once the command has ended and no process with
// its mark is in the group, the kernel may reuse the group's number.
func (p *process) signalGroup(family []census.Member, sig syscall.Signal) error {
	if p.gone && p.mark != lineage.None && !slices.ContainsFunc(family, func(m census.Member) bool { return m.Group == p.pid }) {
		return syscall.ESRCH
	}
	return syscall.Kill(-p.pid, sig)
}

// isFatal reports whether a signal ends a process. Other signals, such as SIGWINCH, do not change
// how the end is awaited.
func isFatal(sig syscall.Signal) bool {
	switch sig {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}

// kill kills all processes of the command. Already ended processes are not an error.
func (p *process) kill() { _ = p.signal(syscall.SIGKILL) }

// expire kills the process at its time limit, unless it has ended.
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

// limit ends the process after d. The time during which the sandbox is saved does not count: after
// a restore the clock jumps, and one timer for d would expire at once. So d is counted in steps.
func (p *process) limit(d time.Duration) { p.step(d, max(d/16, time.Second)) }

// step waits for one step of the remaining time.
func (p *process) step(left, step time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	step = min(step, left)
	started := time.Now()
	p.timer = time.AfterFunc(step, func() {
		if left := charge(left, step, time.Since(started)); left > 0 {
			p.step(left, step)
		} else {
			p.expire()
		}
	})
}

// charge returns the remaining time after a step. A step that took far longer than planned does not
// count, because the sandbox was saved or its host suspended.
func charge(left, step, took time.Duration) time.Duration {
	if took > 2*step+time.Second {
		return left
	}
	return left - step
}

// startForwarding starts passing on the output.
func (p *process) startForwarding() {
	forward := func(f *os.File, size int, wrap func([]byte) *pb.ProcessEvent) {
		p.pumps.Go(func() { p.output.forward(f, size, wrap) })
	}
	if p.tty != nil {
		forward(p.pipes[0], ttyChunk, ttyEvent)
		return
	}
	forward(p.pipes[0], pipeChunk, stdoutEvent)
	forward(p.pipes[1], pipeChunk, stderrEvent)
}

// stopPumpsSoon stops the pumps after drainGrace. p.mu must be held.
func (p *process) stopPumpsSoon() { p.stopPumps(drainGrace) }

// stopPumps stops the pumps after a time. p.mu must be held.
func (p *process) stopPumps(after time.Duration) {
	for _, f := range p.pipes {
		// An error means that a pump has closed the file.
		_ = f.SetReadDeadline(time.Now().Add(after))
	}
}

// watch waits for the process and the end of its output, then notifies all listeners. It calls
// retire first, so that a listener that gets the end no longer finds the process among the running
// ones.
func (p *process) watch(exit <-chan syscall.WaitStatus, retire func(*process)) {
	status := <-exit
	if p.tty != nil {
		p.tty.release()
	}
	p.mu.Lock()
	p.gone = true
	// The kernel hangs up a terminal when its session leader ends, so there is no more output.
	switch {
	case p.ending || p.tty != nil:
		p.stopPumpsSoon()
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

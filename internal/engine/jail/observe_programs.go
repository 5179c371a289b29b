package jail

import (
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine/linux/kernelevents"
)

// observed is a live process of an observed sandbox.
type observed struct {
	command int           // the command from which it descends, or 0
	since   time.Duration // the kernel's clock at its creation; 0 is unknown
	written bool          // a program of it is in the record
}

// guestPID is the PID of the guest in its sandbox.
const guestPID = 1

// process records an event of the kernel. The stream calls it, one event at a time.
func (o *observing) process(e kernelevents.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.PID == guestPID {
		return
	}
	p := o.processes[e.PID]
	if p == nil || e.Kind == kernelevents.Forked {
		p = &observed{}
		switch parent := o.processes[e.Parent]; {
		case parent != nil:
			p.command = parent.command
		case e.Parent == guestPID && e.Kind == kernelevents.Forked:
			p.command = e.PID
		}
		o.processes[e.PID] = p
	}
	switch e.Kind {
	case kernelevents.Forked:
		p.since = e.Clock
	case kernelevents.Executed:
		started := &events.Event{
			Kind: events.Exec, PID: e.PID, Parent: e.Parent, UID: o.b.userInside(e.UID), Command: p.command,
			Program: e.Program, Cut: e.Cut,
		}
		started.SetArguments(e.Args, e.Env)
		p.written = o.write(started, false)
	case kernelevents.Exited:
		end := &events.Event{Kind: events.Exit, PID: e.PID, Parent: e.Parent, UID: o.b.userInside(e.UID), Command: p.command}
		if status := syscall.WaitStatus(e.Status); status.Signaled() {
			end.Signal = int(status.Signal())
		} else {
			end.Code = status.ExitStatus()
		}
		if p.since > 0 {
			end.Took = e.Clock - p.since
		}
		o.write(end, p.written)
		delete(o.processes, e.PID)
		if p.command == e.PID {
			select {
			case o.commandEnded <- struct{}{}:
			default: // a survey is due in any case
			}
		}
	}
}

// write appends an event. If there is no room, the event is counted, and the number is written
// once there is room again.
func (o *observing) write(e *events.Event, must bool) bool {
	if o.dropped > 0 {
		if o.writer.Write(&events.Event{Kind: events.Gap, Lost: o.dropped, Reason: reasonFlood}, false) != nil {
			o.dropped++
			return false
		}
		o.dropped = 0
	}
	if o.writer.Write(e, must) != nil {
		o.dropped++
		return false
	}
	return true
}

// writeDropped records how many events were lost.
func (o *observing) writeDropped() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, err := o.stream.Lost(o.ns)
	if err != nil {
		return err
	}
	o.dropped += lost - o.ringLost
	o.ringLost = lost
	if o.dropped == 0 {
		return nil
	}
	if err := o.writer.Write(&events.Event{Kind: events.Gap, Lost: o.dropped, Reason: reasonFlood}, true); err != nil {
		return err
	}
	o.dropped = 0
	return nil
}

// userInside converts the host's user ID to that in the sandbox.
func (b *instance) userInside(uid uint32) uint32 {
	inside, _ := b.ownerInside(int(uid), int(uid))
	return uint32(inside) // at most rangeIDs
}

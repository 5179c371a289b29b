package inside

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
)

// program is what runs on a terminal; *client.Process is.
type program interface {
	PID() uint32
	// Pump hands output on until the program has ended.
	Pump(stdout, stderr io.Writer) (client.Exit, error)
	Write(ctx context.Context, data []byte) error
	Resize(ctx context.Context, size client.Size) error
	// Close ends the stream. The program continues.
	Close()
}

type hubKey struct {
	sandbox string
	pid     int
}

// hub is one terminal: a program on one side, and all its viewers on the other. It reads as
// fast as the program prints, whether or not viewers keep up.
type hub struct {
	x       *Inside
	key     hubKey
	command []string
	started time.Time
	own     bool // it was opened here, and is kept without viewers
	prog    program
	release func() // of the way in

	turns sync.Mutex // held while control changes hands, before mu

	mu      sync.Mutex
	out     scroll
	size    client.Size
	viewers map[*viewer]struct{}
	control *control
	exit    *client.Exit
	lost    error // why the stream broke off, with exit nil
	done    bool
	closing bool // it accepts no viewers any more
}

// Bounds of terminals: each holds its output, and a stream.
const (
	maxHubs    = 256
	maxOfBox   = 16
	maxViewers = 32
)

// add registers a terminal whose program runs, and begins to read it. If
// somebody was faster with the same one, that is returned, and read for all.
func (x *Inside) add(h *hub) (*hub, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// One of a program that was just started has only its number in common.
	if other := x.entered(h.key); other != nil && !h.own {
		return other, nil
	}
	if err := x.room(h.key); err != nil {
		return nil, err
	}
	h.x, h.viewers = x, map[*viewer]struct{}{}
	x.hubs[h.key] = h
	x.work.Go(h.pump)
	return h, nil
}

// room reports whether there may be another terminal. x.mu must be held.
func (x *Inside) room(key hubKey) error {
	same := 0
	for k := range x.hubs {
		if k.sandbox == key.sandbox {
			same++
		}
	}
	switch {
	case x.ctx.Err() != nil:
		return fault.New(fault.Unavailable, "shutting_down", "the server is shutting down")
	case len(x.hubs) >= maxHubs || same >= maxOfBox:
		return fault.New(fault.Exhausted, "too_many_terminals", "too many terminals are open").WithHint("end a program that runs on one")
	}
	return nil
}

// find returns a terminal that is open here.
func (x *Inside) find(key hubKey) *hub {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.entered(key)
}

// entered is a terminal that can be entered: one that is being let go of is
// none any more, and another takes its place. x.mu must be held.
func (x *Inside) entered(key hubKey) *hub {
	h := x.hubs[key]
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil
	}
	return h
}

// pump reads the program's output until it has ended.
func (h *hub) pump() {
	exit, err := h.prog.Pump(h, h)
	h.x.mu.Lock()
	if h.x.hubs[h.key] == h {
		delete(h.x.hubs, h.key)
	}
	h.x.mu.Unlock()
	h.mu.Lock()
	h.done = true
	if err != nil {
		h.lost = err
	} else {
		h.exit = &exit
	}
	if h.control != nil {
		h.control.cancel()
		h.control = nil
	}
	h.wake()
	h.mu.Unlock()
	h.release()
}

// Write takes output. It never waits for a viewer.
func (h *hub) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out.add(b)
	h.wake()
	return len(b), nil
}

// wake lets all viewers look. h.mu must be held.
func (h *hub) wake() {
	for v := range h.viewers {
		v.nudge()
	}
}

// errClosing is a terminal that is being let go of.
var errClosing = fault.New(fault.Unavailable, "terminal_closing", "the terminal is being let go of; try again")

// enter adds a viewer, who begins with what was printed last.
func (h *hub) enter(v *viewer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return errClosing
	}
	if len(h.viewers) >= maxViewers {
		return fault.New(fault.Exhausted, "too_many_viewers", "too many look at this terminal")
	}
	v.at = h.out.replay()
	h.viewers[v] = struct{}{}
	return nil
}

// leave removes a viewer, with the control that it may have. The hub of a terminal that was
// opened elsewhere is removed with its last viewer.
func (h *hub) leave(v *viewer) {
	h.drop(v, true)
	h.mu.Lock()
	delete(h.viewers, v)
	empty := len(h.viewers) == 0 && !h.own
	h.closing = h.closing || empty
	h.mu.Unlock()
	if empty {
		h.x.mu.Lock()
		if h.x.hubs[h.key] == h {
			delete(h.x.hubs, h.key) // so that who comes now begins anew
		}
		h.x.mu.Unlock()
		h.prog.Close()
	}
}

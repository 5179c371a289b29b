package inside

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
)

// program is a program on a terminal; *client.Process implements it.
type program interface {
	PID() uint32
	// Stream passes on output until the program has ended.
	Stream(stdout, stderr io.Writer) (client.Exit, error)
	Write(ctx context.Context, data []byte) error
	Resize(ctx context.Context, size client.Size) error
	// Close ends the stream. The program continues.
	Close()
}

type hubKey struct {
	sandbox string
	pid     int
}

// hub is one terminal: a program on one side, and all its viewers on the other. It reads output as
// fast as the program prints, whether or not viewers keep up.
type hub struct {
	x          *Inside
	key        hubKey
	command    []string
	started    time.Time
	openedHere bool // the console started the program, so the hub stays without viewers
	prog       program
	release    func() // ends the connection to the guest

	controlMu sync.Mutex // held while control changes hands; locked before mu

	mu      sync.Mutex
	out     scroll
	size    client.Size
	viewers map[*viewer]struct{}
	control *control
	exit    *client.Exit
	lost    error // why the stream broke, if exit is nil
	done    bool
	closing bool // no further viewers are accepted
}

// Limits of terminals: each holds its output, and a stream.
const (
	maxHubs           = 256
	maxHubsPerSandbox = 16
	maxViewers        = 32
)

// add registers the terminal of a running program, and starts to read it. If another request
// registered the same terminal first, add returns that one.
func (x *Inside) add(h *hub) (*hub, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// A program that was just started is a new one, even if its process ID was used before.
	if other := x.openHub(h.key); other != nil && !h.openedHere {
		return other, nil
	}
	if err := x.checkCapacity(h.key); err != nil {
		return nil, err
	}
	h.x, h.viewers = x, map[*viewer]struct{}{}
	x.hubs[h.key] = h
	x.work.Go(h.readOutput)
	return h, nil
}

// checkCapacity reports whether another terminal may be opened. The caller holds x.mu.
func (x *Inside) checkCapacity(key hubKey) error {
	same := 0
	for k := range x.hubs {
		if k.sandbox == key.sandbox {
			same++
		}
	}
	switch {
	case x.ctx.Err() != nil:
		return fault.New(fault.Unavailable, "shutting_down", "the server is shutting down")
	case len(x.hubs) >= maxHubs || same >= maxHubsPerSandbox:
		return fault.New(fault.Exhausted, "too_many_terminals", "too many terminals are open").WithHint("end a program on a terminal")
	}
	return nil
}

// find returns a terminal that is already open in this server.
func (x *Inside) find(key hubKey) *hub {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.openHub(key)
}

// openHub returns a terminal that accepts viewers. A terminal that is being closed does not accept
// any, and is replaced. The caller holds x.mu.
func (x *Inside) openHub(key hubKey) *hub {
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

// readOutput reads the program's output until the program has ended.
func (h *hub) readOutput() {
	exit, err := h.prog.Stream(h, h)
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

// Write stores output. It never waits for a viewer.
func (h *hub) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.out.add(b)
	h.wake()
	return len(b), nil
}

// wake makes all viewers check for new output and events. The caller holds h.mu.
func (h *hub) wake() {
	for v := range h.viewers {
		v.notify()
	}
}

// errClosing is returned for a terminal that is being closed.
var errClosing = fault.New(fault.Unavailable, "terminal_closing", "the terminal is being closed; try again")

// enter adds a viewer, which first gets the latest output.
func (h *hub) enter(v *viewer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return errClosing
	}
	if len(h.viewers) >= maxViewers {
		return fault.New(fault.Exhausted, "too_many_viewers", "too many viewers of this terminal")
	}
	v.at = h.out.replay()
	h.viewers[v] = struct{}{}
	return nil
}

// leave removes a viewer and its control. The hub of a terminal that another caller started is
// removed with its last viewer.
func (h *hub) leave(v *viewer) {
	h.drop(v, true)
	h.mu.Lock()
	delete(h.viewers, v)
	empty := len(h.viewers) == 0 && !h.openedHere
	h.closing = h.closing || empty
	h.mu.Unlock()
	if empty {
		h.x.mu.Lock()
		if h.x.hubs[h.key] == h {
			delete(h.x.hubs, h.key) // so that the next viewer opens a new one
		}
		h.x.mu.Unlock()
		h.prog.Close()
	}
}

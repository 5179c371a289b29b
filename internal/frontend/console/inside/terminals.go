package inside

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/guest/client"
)

// Terminal is one terminal as a page lists it.
type Terminal struct {
	PID       int        `json:"pid"`
	Command   []string   `json:"command"`
	StartedAt *time.Time `json:"started_at"` // null if it was not opened here
	Cols      uint16     `json:"cols"`
	Rows      uint16     `json:"rows"`
	Viewers   int        `json:"viewers"`
	// Controller is the name of the session that may type, or null. Mine reports whether it is the
	// requesting session.
	Controller *string `json:"controller"`
	Mine       bool    `json:"mine"`
}

// show returns the terminal as a page lists it.
func (h *hub) show(caller session.Session) Terminal {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := Terminal{PID: h.key.pid, Command: h.command, Cols: h.size.Cols, Rows: h.size.Rows, Viewers: len(h.viewers)}
	if !h.started.IsZero() {
		t.StartedAt = &h.started
	}
	if h.control != nil {
		name := h.control.holder.name()
		t.Controller, t.Mine = &name, h.control.holder.caller.ID == caller.ID
	}
	return t
}

// terminals lists all programs on terminals, including those that other callers started.
func (x *Inside) terminals(w http.ResponseWriter, r *http.Request, v visit) error {
	c, err := x.deps.Census.Census(r.Context(), v.caller.Principal(), v.sb.ID)
	if err != nil {
		return err
	}
	out := struct {
		Terminals []Terminal `json:"terminals"`
	}{[]Terminal{}}
	for _, p := range c.Processes {
		if !p.Terminal {
			continue
		}
		t := Terminal{PID: p.PID, Command: p.Args}
		if h := x.find(hubKey{v.sb.ID, p.PID}); h != nil {
			t = h.show(v.caller)
		}
		if p.Cols > 0 {
			t.Cols, t.Rows = p.Cols, p.Rows
		}
		if t.Command == nil {
			t.Command = []string{}
		}
		out.Terminals = append(out.Terminals, t)
	}
	return writeJSON(w, http.StatusOK, out)
}

// shells are the default programs of a terminal. The first existing one is used.
var shells = [][]string{{"/bin/bash", "-il"}, {"/bin/sh", "-i"}}

// maxWindow bounds a window, in characters.
const maxWindow = 1000

// windowOf returns the size of a window, or an error if it is out of range.
func windowOf(cols, rows int) (client.Size, error) {
	if cols < 1 || rows < 1 || cols > maxWindow || rows > maxWindow {
		return client.Size{}, fault.Newf(fault.Invalid, "invalid_size", "columns and rows must be from 1 to %d", maxWindow)
	}
	return client.Size{Cols: uint16(cols), Rows: uint16(rows)}, nil
}

func (x *Inside) openTerminal(w http.ResponseWriter, r *http.Request, v visit) error {
	var in struct {
		Cols    int      `json:"cols"`
		Rows    int      `json:"rows"`
		Command []string `json:"command,omitempty"`
	}
	if err := readJSON(w, r, maxSmall, &in); err != nil {
		return err
	}
	size, err := windowOf(in.Cols, in.Rows)
	if err != nil {
		return err
	}
	x.mu.Lock()
	err = x.checkCapacity(hubKey{sandbox: v.sb.ID})
	x.mu.Unlock()
	if err != nil {
		return err
	}
	guest := x.connect(v, 0)
	commands := shells
	if len(in.Command) > 0 {
		commands = [][]string{in.Command}
	}
	var p *client.Process
	var cut context.CancelFunc
	var command []string
	for _, command = range commands {
		p, cut, err = x.begin(r.Context(), guest, command, size)
		// If the sandbox does not answer for one shell, it would not answer for another.
		if err == nil || len(in.Command) > 0 || fault.KindOf(err) == fault.Timeout {
			break
		}
	}
	if err != nil {
		guest.close()
		return err
	}
	h := &hub{
		key: hubKey{v.sb.ID, int(p.PID())}, command: slices.Clone(command), started: time.Now().UTC(), openedHere: true,
		prog: p, size: size, release: func() { cut(); guest.close() },
	}
	if _, err := x.add(h); err != nil {
		p.Close()
		h.release()
		return err
	}
	return writeJSON(w, http.StatusCreated, h.show(v.caller))
}

// startTimeout bounds opening a terminal.
const startTimeout = 20 * time.Second

// begin starts a program on a terminal.
func (x *Inside) begin(ctx context.Context, guest guestConn, command []string, size client.Size) (*client.Process, context.CancelFunc, error) {
	spec := client.Spec{
		Cmd: command[0], Args: command[1:], TTY: &size, Stdin: true,
		Env: map[string]string{"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"},
	}
	return x.openDetached(ctx, func(ctx context.Context) (*client.Process, error) { return guest.process().Start(ctx, spec) })
}

// openDetached opens a stream that outlives the request. The stream ends when it is closed, at the
// latest with the server. The request's context bounds only the opening.
func (x *Inside) openDetached(ctx context.Context, open func(context.Context) (*client.Process, error)) (*client.Process, context.CancelFunc, error) {
	stream, cut := context.WithCancel(x.ctx)
	late := time.AfterFunc(startTimeout, cut)
	gone := context.AfterFunc(ctx, cut)
	p, err := open(stream)
	inTime, clientStays := late.Stop(), gone()
	if !inTime || err == nil && !clientStays {
		if err == nil {
			p.Close()
		}
		err = fault.New(fault.Timeout, "terminal_late", "the terminal did not open in time")
	}
	if err != nil {
		cut()
		return nil, nil, err
	}
	return p, cut, nil
}

// open returns the terminal with a process ID. It uses the hub that is already open in this server,
// or attaches to the program that another caller has started.
func (x *Inside) open(ctx context.Context, v visit, pid int) (*hub, error) {
	key := hubKey{v.sb.ID, pid}
	if h := x.find(key); h != nil {
		return h, nil
	}
	found, err := x.findTerminal(ctx, v, pid)
	if err != nil {
		return nil, err
	}
	guest := x.connect(v, 0)
	p, cut, err := x.openDetached(ctx, func(ctx context.Context) (*client.Process, error) {
		return guest.process().AttachTerminal(ctx, uint32(pid), "")
	})
	if err != nil {
		guest.close()
		return nil, err
	}
	h := &hub{
		key: key, command: found.Args, prog: p, release: func() { cut(); guest.close() },
		size: client.Size{Cols: found.Cols, Rows: found.Rows},
	}
	got, err := x.add(h)
	if got != h {
		p.Close()
		h.release()
	}
	return got, err
}

func pidOf(r *http.Request) (int, error) {
	pid, err := strconv.ParseUint(r.PathValue("pid"), 10, 31)
	if err != nil {
		return 0, fault.New(fault.Invalid, "invalid_pid", "a terminal is identified by its program's PID")
	}
	return int(pid), nil
}

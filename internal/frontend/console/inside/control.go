package inside

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
)

// control is the right of one viewer to type. Its context is cancelled when the viewer loses
// control.
type control struct {
	holder *viewer
	ctx    context.Context
	cancel context.CancelFunc
}

// entryTimeout bounds writing an audit entry.
const entryTimeout = 10 * time.Second

// take gives control to a viewer, and takes it from the previous holder. The audit entry is written
// before anything can be typed.
func (h *hub) take(ctx context.Context, v *viewer) error {
	h.controlMu.Lock()
	defer h.controlMu.Unlock()
	h.mu.Lock()
	previous, done := h.control, h.done
	h.mu.Unlock()
	if done {
		return fault.New(fault.Conflict, "terminal_ended", "the program has ended")
	}
	if previous != nil && previous.holder == v {
		return nil
	}
	data := payload.Control{PID: h.key.pid, Do: "take"}
	if previous != nil {
		data.Displaced = previous.holder.actor()
	}
	ctx, cancel := context.WithTimeout(ctx, entryTimeout)
	defer cancel()
	err := h.x.deps.Audit.Append(ctx, audit.Draft{Kind: audit.TerminalControl, Sandbox: h.key.sandbox, Actor: v.actor(), Data: data})
	if err != nil {
		return err
	}
	c := &control{holder: v}
	c.ctx, c.cancel = context.WithCancel(v.ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.control != nil {
		h.control.cancel() // the holder's unfinished input is dropped
	}
	h.control = c
	h.wake()
	return nil
}

// drop takes control away from a viewer that has it. left means that the viewer has disconnected.
func (h *hub) drop(v *viewer, left bool) {
	h.controlMu.Lock()
	defer h.controlMu.Unlock()
	h.mu.Lock()
	if h.control == nil || h.control.holder != v {
		h.mu.Unlock()
		return
	}
	h.control.cancel()
	h.control = nil
	h.wake()
	h.mu.Unlock()
	err := h.x.deps.Audit.Note(audit.Draft{
		Kind: audit.TerminalControl, Sandbox: h.key.sandbox, Actor: v.actor(), Data: payload.Control{PID: h.key.pid, Do: "release", Left: left},
	})
	if err != nil {
		h.x.deps.Log.Error("entry not recorded", "sandbox", h.key.sandbox, "kind", string(audit.TerminalControl), "err", err)
	}
}

// controlOf returns the control of a viewer, or an error if the viewer has no control.
func (h *hub) controlOf(v *viewer) (*control, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.control == nil || h.control.holder != v {
		return nil, fault.New(fault.Denied, "no_control", "only the viewer with control may type").WithHint("take control first")
	}
	return h.control, nil
}

const (
	// maxInputChunk is the largest input that is sent at once.
	maxInputChunk = 32 << 10
	// inputTimeout bounds how long sending input may block because a program does not read it.
	inputTimeout = 30 * time.Second
)

// input sends a viewer's input.
func (h *hub) input(v *viewer, data []byte) error {
	for len(data) > 0 {
		c, err := h.controlOf(v)
		if err != nil {
			return err
		}
		n := min(len(data), maxInputChunk)
		ctx, cancel := context.WithTimeout(c.ctx, inputTimeout)
		err = h.prog.Write(ctx, data[:n])
		late := ctx.Err() != nil && c.ctx.Err() == nil
		cancel()
		switch {
		case late:
			return fault.New(fault.Timeout, "input_stalled", "the program does not read its input")
		case v.ctx.Err() != nil:
			return v.ctx.Err()
		case c.ctx.Err() != nil:
			if now, err := h.controlOf(v); err != nil || now == c {
				return err // another viewer has control now
			}
			continue // the viewer lost control and has taken it again
		case err != nil:
			return err
		}
		data = data[n:]
	}
	return nil
}

// resize changes the window's size for a viewer.
func (h *hub) resize(v *viewer, size client.Size) error {
	c, err := h.controlOf(v)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, inputTimeout)
	defer cancel()
	if err := h.prog.Resize(ctx, size); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.size = size
	h.wake()
	return nil
}

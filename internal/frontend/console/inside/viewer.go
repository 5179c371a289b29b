package inside

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/guest/client"
)

const (
	// maxPageMessage bounds one message of a page, such as a pasted text.
	maxPageMessage = 1 << 20
	// maxOutputChunk bounds the output in one message.
	maxOutputChunk = 64 << 10
	// sendTimeout bounds how long a page may take to read one message.
	sendTimeout = 10 * time.Second
	// pingEvery is how often pages are pinged, to detect those that left silently.
	pingEvery = 30 * time.Second
	// maxOpenAttempts bounds the attempts to open a terminal that is being closed at the same time.
	maxOpenAttempts = 3
)

// viewer is one page that shows a terminal.
type viewer struct {
	hub     *hub
	caller  session.Session
	ctx     context.Context
	cancel  context.CancelFunc
	conn    *websocket.Conn
	changed chan struct{}
	window  client.Size // size of the page's window, if known
	// typing means that the program is slow to read the page's input. During that time nothing is
	// read from the page, not even its answers to pings.
	typing atomic.Bool

	at int64 // position in the output; set by hub.enter, then used by the writer only

	// The fields below describe the last state that was sent. Only the writer uses them.
	sentControl *control
	size        client.Size
	started     bool
}

func (v *viewer) actor() string { return v.caller.Principal().Actor() }

// name is the name of the session for people.
func (v *viewer) name() string { return cmp.Or(v.caller.Name, v.caller.ID) }

func (v *viewer) notify() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// attach shows a terminal to a page over a WebSocket until one of them ends. The page's origin has
// been checked before. The handshake checks it again, because browsers let any site open a
// WebSocket with the console's cookie.
func (x *Inside) attach(w http.ResponseWriter, r *http.Request, at visit) error {
	pid, err := pidOf(r)
	if err != nil {
		return err
	}
	window, err := requestedSize(r)
	if err != nil {
		return err
	}
	v := &viewer{caller: at.caller, changed: make(chan struct{}, 1), window: window}
	v.ctx, v.cancel = context.WithCancel(r.Context())
	defer v.cancel()
	for range maxOpenAttempts {
		if v.hub, err = x.open(r.Context(), at, pid); err != nil {
			return err
		}
		if err = v.hub.enter(v); !errors.Is(err, errClosing) {
			break
		}
	}
	if err != nil {
		return err
	}
	defer v.hub.leave(v)
	v.conn, err = websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		x.deps.Log.Debug("websocket refused", "sandbox", at.sb.ID, "err", err)
		return nil // it has been answered
	}
	stop := context.AfterFunc(x.ctx, v.cancel)
	defer stop()
	v.stream()
	return nil
}

// stream shows the terminal until the page, the session or the program ends.
func (v *viewer) stream() {
	v.conn.SetReadLimit(maxPageMessage)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer v.cancel()
		v.read()
	}()
	code, why := v.write()
	v.cancel()
	// A page that does not answer is disconnected, which also ends its reader.
	if v.conn.Close(code, why) != nil {
		_ = v.conn.CloseNow() // it has gone
	}
	<-read
}

func requestedSize(r *http.Request) (client.Size, error) {
	q := r.URL.Query()
	if q.Get("cols") == "" && q.Get("rows") == "" {
		return client.Size{}, nil
	}
	cols, err := strconv.Atoi(q.Get("cols"))
	if err == nil {
		var rows int
		if rows, err = strconv.Atoi(q.Get("rows")); err == nil {
			return windowOf(cols, rows)
		}
	}
	return client.Size{}, fault.Wrap(err, fault.Invalid, "invalid_size", "cols and rows must be numbers")
}

// read reads the page's messages until it leaves.
func (v *viewer) read() {
	for {
		kind, data, err := v.conn.Read(v.ctx)
		if err != nil {
			return
		}
		v.typing.Store(true)
		if kind == websocket.MessageBinary {
			err = v.hub.input(v, data)
		} else {
			err = v.handleMessage(data)
		}
		v.typing.Store(false)
		if err != nil && v.ctx.Err() == nil {
			v.send(errorFrame(err))
		}
	}
}

func (v *viewer) handleMessage(data []byte) error {
	var in pageMessage
	if json.Unmarshal(data, &in) != nil {
		return fault.New(fault.Invalid, "invalid_json", "a message must be JSON with a type")
	}
	switch in.Type {
	case "take":
		if !v.caller.Scope.Has(session.Operator) {
			return fault.Newf(fault.Denied, "scope_too_small", "taking control needs the scope %s", session.Operator)
		}
		if err := v.hub.take(v.ctx, v); err != nil || v.window == (client.Size{}) {
			return err
		}
		return v.hub.resize(v, v.window)
	case "release":
		v.hub.drop(v, false)
		return nil
	case "resize":
		size, err := windowOf(in.Cols, in.Rows)
		if err != nil {
			return err
		}
		v.window = size
		return v.hub.resize(v, size)
	}
	return fault.New(fault.Invalid, "unknown_type", "a message must be take, release or resize")
}

// send sends one message. If the page does not read it, send disconnects the page.
func (v *viewer) send(m message) {
	ctx, cancel := context.WithTimeout(v.ctx, sendTimeout)
	defer cancel()
	if v.conn.Write(ctx, m.kind, m.data) != nil {
		v.cancel()
	}
}

// write sends output and changes until the end, and then the reason for the end.
func (v *viewer) write() (websocket.StatusCode, string) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		next, more, code, why := v.next()
		for _, m := range next {
			if v.send(m); v.ctx.Err() != nil {
				return websocket.StatusGoingAway, "the page or the session has ended"
			}
		}
		if code != 0 {
			return code, why
		}
		if more {
			continue
		}
		select {
		case <-v.ctx.Done():
			return websocket.StatusGoingAway, "the session or the server has ended"
		case <-v.changed:
		case <-ping.C:
			if v.typing.Load() {
				continue
			}
			ctx, cancel := context.WithTimeout(v.ctx, sendTimeout)
			err := v.conn.Ping(ctx)
			cancel()
			if err != nil && !v.typing.Load() {
				return websocket.StatusGoingAway, "no answer"
			}
		}
	}
}

// next returns output that the page has not received. With a code, it returns the reason why no
// output follows.
func (v *viewer) next() (out []message, more bool, code websocket.StatusCode, why string) {
	h := v.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	text := func(frame any) { out = append(out, textMessage(frame)) }
	var state controlState
	if h.control != nil {
		name := h.control.holder.name()
		state.Controller, state.Mine = &name, h.control.holder == v
	}
	switch {
	case !v.started:
		text(readyFrame{"ready", h.key.pid, h.size.Cols, h.size.Rows, state, v.caller.Scope.String()})
	case v.sentControl != h.control:
		text(controlFrame{"control", state})
	}
	if v.started && v.size != h.size {
		text(sizeFrame{"size", h.size.Cols, h.size.Rows})
	}
	v.started, v.sentControl, v.size = true, h.control, h.size
	data, buffered := h.out.from(v.at, maxOutputChunk)
	if !buffered {
		text(failFrame{"error", "too_slow", "the terminal printed faster than this page read"})
		return out, false, websocket.StatusPolicyViolation, "too slow"
	}
	if len(data) > 0 {
		v.at += int64(len(data))
		out = append(out, message{websocket.MessageBinary, data})
	}
	switch {
	case v.at < h.out.end:
		return out, true, 0, ""
	case !h.done:
	case h.exit != nil:
		text(exitFrame{"exit", h.exit.Code})
		return out, false, websocket.StatusNormalClosure, "the program has ended"
	default:
		out = append(out, errorFrame(h.lost))
		return out, false, websocket.StatusGoingAway, "the stream ended early"
	}
	return out, false, 0, ""
}

package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/host/ticker"
)

const (
	// streamHeartbeat is how often a silent stream sends a heartbeat. Proxies commonly close
	// streams that are silent for a minute.
	streamHeartbeat = 15 * time.Second
	// streamTimeout bounds how long a client may take to read one event, so that a client that
	// stopped reading does not hold a connection for ever.
	streamTimeout = 10 * time.Second
)

// errGone is returned for a client that no longer reads.
var errGone = errors.New("the client went away")

// streamApprovals writes events until the client or the service ends.
func (h *approvalHandlers) streamApprovals(c huma.Context, caller approval.Caller, q approval.Query, after int64) error {
	out := newEventStream(c.BodyWriter())
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	// The first line is sent at once, so that a client knows that the stream is open.
	if out.send(": approvals\n\n") != nil {
		return nil
	}
	defer out.heartbeat(ctx, cancel, ":\n\n")()
	err := h.approvals.Watch(ctx, caller, q, after, func(e approval.Event) error {
		data, err := json.Marshal(approval.ShowEvent(e))
		if err != nil {
			return err
		}
		var b strings.Builder
		if e.Seq > 0 {
			fmt.Fprintf(&b, "id: %d\n", e.Seq)
		}
		// JSON contains no newline, so the data is always one line.
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", e.Type, data)
		return out.send(b.String())
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// eventStream writes events and heartbeats to a client, from more than one goroutine.
type eventStream struct {
	mu sync.Mutex
	w  io.Writer
	rc *http.ResponseController
}

func newEventStream(w io.Writer) *eventStream {
	e := &eventStream{w: w}
	if w, ok := w.(http.ResponseWriter); ok {
		e.rc = http.NewResponseController(w)
	}
	return e
}

func (e *eventStream) send(text string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rc != nil && e.rc.SetWriteDeadline(time.Now().Add(streamTimeout)) == nil {
		// The connection may serve other requests afterwards.
		defer func() { _ = e.rc.SetWriteDeadline(time.Time{}) }()
	}
	if _, err := io.WriteString(e.w, text); err != nil {
		return errors.Join(errGone, err)
	}
	if e.rc == nil {
		return nil
	}
	if err := e.rc.Flush(); err != nil {
		return errors.Join(errGone, err)
	}
	return nil
}

// heartbeat sends a text periodically until the returned function is called, and cancels the stream
// if the client does not read it.
func (e *eventStream) heartbeat(ctx context.Context, cancel context.CancelFunc, text string) (stop func()) {
	return ticker.Every(ctx, streamHeartbeat, func(context.Context) {
		if e.send(text) != nil {
			cancel()
		}
	})
}

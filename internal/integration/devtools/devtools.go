// Package devtools owns a small client of Chromium's DevTools protocol (CDP): it opens one page,
// waits until it has loaded, and takes a picture or a PDF of it.
//
// The other end is a browser in a sandbox, and the page chooses most of what it sends, so nothing
// that is received is trusted: messages have a maximum size, only the newest state of the page is
// kept, and texts are shortened.
package devtools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// maxMessage bounds one message. The largest are pictures.
	maxMessage = 64 << 20
	// maxText bounds a text of the browser in an error or a result.
	maxText = 2000
	// callTimeout bounds how long the browser may take for an answer if the caller sets no deadline.
	callTimeout = time.Minute
)

// ErrClosed means that the browser or its sandbox has ended.
var ErrClosed = errors.New("the browser has closed the connection")

// Conn is a connection to a browser.
type Conn struct {
	ws    *websocket.Conn
	ended chan struct{} // closed when nothing is read any more

	mu      sync.Mutex
	err     error // why nothing is read any more
	last    int64
	waiting map[int64]chan<- message
	pages   map[string]*Page // by session
}

// message is an answer or an event.
type message struct {
	ID      int64           `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Dial connects to the browser target at a WebSocket address.
func Dial(ctx context.Context, client *http.Client, address string) (*Conn, error) {
	// The response has no body after a failed handshake, as the library has read and closed it.
	ws, _, err := websocket.Dial(ctx, address, &websocket.DialOptions{HTTPClient: client}) //nolint:bodyclose // see above
	if err != nil {
		return nil, fmt.Errorf("connect to the browser: %w", err)
	}
	ws.SetReadLimit(maxMessage)
	c := &Conn{ws: ws, ended: make(chan struct{}), waiting: map[int64]chan<- message{}, pages: map[string]*Page{}}
	go c.read()
	return c, nil
}

// Close closes the connection, and waits until nothing is read any more.
func (c *Conn) Close() {
	_ = c.ws.CloseNow() // nothing is lost: the browser keeps no state for this connection
	<-c.ended
}

// Ended returns a channel that is closed when the connection has ended.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// read passes on what the browser sends. It never waits for a reader.
func (c *Conn) read() {
	defer close(c.ended)
	for {
		_, data, err := c.ws.Read(context.Background())
		var m message
		if err == nil {
			err = json.Unmarshal(data, &m)
		}
		if err != nil {
			_ = c.ws.CloseNow() // after a message that is not JSON
			c.mu.Lock()
			c.err = fmt.Errorf("%w: %w", ErrClosed, err)
			c.mu.Unlock()
			return
		}
		c.mu.Lock()
		answered, page := c.waiting[m.ID], c.pages[m.Session]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		switch {
		case answered != nil:
			answered <- m // it has room for the only answer
		case m.ID == 0 && page != nil:
			page.event(m.Method, m.Params)
		}
	}
}

// call sends a command to a session, or with "" to the browser, and stores its result.
func (c *Conn) call(ctx context.Context, session, method string, params, result any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("the browser gave no answer to %s within %s", method, callTimeout))
		defer cancel()
	}
	answer := make(chan message, 1)
	c.mu.Lock()
	c.last++
	id := c.last
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()
	request := map[string]any{"id": id, "method": method}
	if session != "" {
		request["sessionId"] = session
	}
	if params != nil {
		request["params"] = params
	}
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if err := c.ws.Write(ctx, websocket.MessageText, data); err != nil {
		return fmt.Errorf("%s: %w", method, errors.Join(context.Cause(ctx), err))
	}
	select {
	case m := <-answer:
		return m.into(method, result)
	case <-c.ended:
		// The answer may have come before the end.
		select {
		case m := <-answer:
			return m.into(method, result)
		default:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// into stores the result of an answer.
func (m message) into(method string, result any) error {
	if m.Error != nil {
		return fmt.Errorf("%s: %s", method, shortened(m.Error.Message))
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("%s: the answer cannot be read: %w", method, err)
	}
	return nil
}

// shortened returns at most maxText bytes.
func shortened(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "…"
	}
	return s
}

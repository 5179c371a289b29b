package mcpserver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/mcpserver"
)

// sessionServer is an endpoint whose requests are not sent over a network, so that its clock is
// that of the synctest bubble. Keys are their own IDs.
type sessionServer struct {
	*testing.T
	h       *mcpserver.HTTP
	release chan struct{} // ends calls of the tool wait
	once    sync.Once
}

func newSessionServer(t *testing.T) *sessionServer {
	c := &sessionServer{T: t, release: make(chan struct{})}
	h, err := mcpserver.NewHTTP(mcpserver.HTTPOptions{
		Authenticate: func(r *http.Request) (string, error) { return r.Header.Get("X-Api-Key"), nil },
		Dial:         func(context.Context, string) (net.Conn, error) { return nil, errors.New("there is no server") },
		Refused:      func(_, _, _ string) {}, Log: slog.New(slog.DiscardHandler), Version: "test",
		Extend: mcpserver.Extension{Server: func(srv *mcp.Server) {
			mcp.AddTool(srv, &mcp.Tool{Name: "wait"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
				<-c.release
				return &mcp.CallToolResult{}, nil, nil
			})
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.h = h
	t.Cleanup(func() {
		c.releaseCalls()
		h.Close()
	})
	return c
}

// releaseCalls ends all calls.
func (c *sessionServer) releaseCalls() {
	c.once.Do(func() { close(c.release) })
	synctest.Wait()
}

func (c *sessionServer) request(ctx context.Context, method, key, session, body string) *http.Response {
	r := httptest.NewRequestWithContext(ctx, method, "http://localhost/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("X-Api-Key", key)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	return w.Result()
}

// openSession begins a session.
func (c *sessionServer) openSession(key string) (session string, status int) {
	resp := c.request(c.Context(), http.MethodPost, key, "", hello)
	if session = resp.Header.Get("Mcp-Session-Id"); session != "" {
		c.request(c.Context(), http.MethodPost, key, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return session, resp.StatusCode
}

func (c *sessionServer) mustOpenSession(key string) string {
	c.Helper()
	session, status := c.openSession(key)
	if session == "" {
		c.Fatalf("no session: %d", status)
	}
	return session
}

// isOpen reports whether a session is still open. The request counts as a use of the session.
func (c *sessionServer) isOpen(key, session string) bool {
	c.Helper()
	switch status := c.request(c.Context(), http.MethodPost, key, session, `{"jsonrpc":"2.0","id":2,"method":"ping"}`).StatusCode; status {
	case http.StatusOK:
		return true
	case http.StatusNotFound:
	default:
		c.Errorf("a ping: %d", status)
	}
	return false
}

const wait = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"wait","arguments":{}}}`

// start sends a request that lasts until cut is called. The call that it makes continues after
// that.
func (c *sessionServer) start(method, key, session, body string) (cut func()) {
	ctx, cancel := context.WithCancel(c.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.request(ctx, method, key, session, body)
	}()
	synctest.Wait()
	return func() { cancel(); <-done }
}

// A key with too many sessions can open another one: clients that never end their sessions must not
// lock their key out.
func TestF23TheLongestIdleSessionMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSessionServer(t)
		var sessions []string
		for range 32 {
			sessions = append(sessions, c.mustOpenSession("k"))
			time.Sleep(time.Second)
		}
		foreign := c.mustOpenSession("other")
		busy, listening, broken := sessions[0], sessions[1], sessions[2]
		defer c.start(http.MethodPost, "k", busy, wait)()
		defer c.start(http.MethodGet, "k", listening, "")()
		c.start(http.MethodPost, "k", broken, wait)() // its connection breaks, its call continues
		time.Sleep(time.Second)
		recent := sessions[3]
		if !c.isOpen("k", recent) {
			t.Fatal("a session ended before the test began")
		}
		time.Sleep(time.Second)

		newest := c.mustOpenSession("k")
		if c.isOpen("k", sessions[4]) {
			t.Error("the longest idle session did not make room")
		}
		for i, s := range append(sessions[5:], newest, recent) {
			if !c.isOpen("k", s) {
				t.Errorf("session %d ended, though another was idle for longer", i)
			}
		}
		// A client that keeps opening sessions ends its own idle ones: first those whose
		// client is not connected, then those that listen, and none with a call.
		for range 29 {
			c.mustOpenSession("k")
		}
		for i, s := range append(sessions[3:], newest) {
			if c.isOpen("k", s) {
				t.Errorf("session %d exceeds the limit and is open", i)
			}
		}
		if !c.isOpen("k", listening) {
			t.Error("a session whose client listens ended before others")
		}
		if !c.isOpen("k", busy) || !c.isOpen("k", broken) {
			t.Error("a session ended during its call")
		}
		if !c.isOpen("other", foreign) {
			t.Error("another key's session ended")
		}
		c.releaseCalls()
	})
}

func TestF23BusySessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSessionServer(t)
		var cuts []func()
		for range 32 {
			cuts = append(cuts, c.start(http.MethodPost, "k", c.mustOpenSession("k"), wait))
		}
		if _, status := c.openSession("k"); status != http.StatusTooManyRequests {
			t.Errorf("one session more than the limit, with all busy: %d", status)
		}
		c.releaseCalls()
		for _, cut := range cuts {
			cut()
		}
		c.mustOpenSession("k")

		// Many sessions that begin at once are limited like sessions one after the other. The
		// library panics when a session is closed while it is being connected.
		started := make(chan string, 400)
		for range cap(started) {
			go func() {
				session, _ := c.openSession("all")
				started <- session
			}()
		}
		var sessions []string
		for range cap(started) {
			sessions = append(sessions, <-started)
		}
		open := 0
		for _, s := range sessions {
			if s != "" && c.isOpen("all", s) {
				open++
			}
		}
		if open == 0 || open > 32 {
			t.Errorf("%d sessions are open", open)
		}
	})
}

func TestF23IdleSessionsEndAfterMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSessionServer(t)
		idle, used, listening, busy, broken := c.mustOpenSession("k"), c.mustOpenSession("k"), c.mustOpenSession("k"), c.mustOpenSession("k"), c.mustOpenSession("k")
		hangUp := c.start(http.MethodGet, "k", listening, "")
		defer c.start(http.MethodPost, "k", busy, wait)()
		c.start(http.MethodPost, "k", broken, wait)()
		for range 3 {
			time.Sleep(14 * time.Minute)
			if !c.isOpen("k", used) {
				t.Fatal("a session ended between two calls")
			}
		}
		if c.isOpen("k", idle) {
			t.Error("a session is open after 42 minutes without a call")
		}
		for name, s := range map[string]string{"listening": listening, "busy": busy, "broken": broken} {
			if !c.isOpen("k", s) {
				t.Errorf("%s: the session ended", name)
			}
		}
		c.releaseCalls()
		hangUp()
		time.Sleep(17 * time.Minute)
		for name, s := range map[string]string{"listening": listening, "busy": busy, "broken": broken, "used": used} {
			if c.isOpen("k", s) {
				t.Errorf("%s: the session is open", name)
			}
		}
	})
}

// If too many keys are in use, an idle one makes room for a later key.
func TestF23TheLongestIdleKeyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSessionServer(t)
		busy := c.mustOpenSession("k0")
		defer c.start(http.MethodPost, "k0", busy, wait)()
		for i := 1; i < 256; i++ {
			c.mustOpenSession(fmt.Sprintf("k%d", i))
		}
		if _, status := c.openSession("late"); status != http.StatusTooManyRequests {
			t.Errorf("one key too many, with none idle: %d", status)
		}
		time.Sleep(30 * time.Minute)
		c.mustOpenSession("late")
		if !c.isOpen("k0", busy) {
			t.Error("a key lost its session during a call")
		}
		c.releaseCalls()
	})
}

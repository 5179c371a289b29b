package inside

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/sandbox"
)

// runningSandbox is a lookup that always returns a running sandbox.
type runningSandbox struct{}

func (runningSandbox) Get(context.Context, sandbox.Principal, string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: "box", State: sandbox.Running}, nil
}

// TestSilentGuestTimesOut checks a guest that never answers, because an attacker who is root inside
// has replaced it. A page must not wait for ever: a browser opens few connections, so the whole
// console would hang.
func TestSilentGuestTimesOut(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		limit              time.Duration
	}{
		{"GET", "files?path=/x", "", answerTimeout},
		{"GET", "file?path=/x", "", answerTimeout},
		{"PUT", "file?path=/x", "text", answerTimeout},
		{"DELETE", "file?path=/x", "", workTimeout},
		{"POST", "dirs", `{"path":"/x"}`, workTimeout},
		{"POST", "move", `{"from":"/x","to":"/y"}`, workTimeout},
		{"POST", "terminals", `{"cols":80,"rows":24}`, startTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			x, err := New(Deps{
				Sandboxes: runningSandbox{}, Census: unusedServices{}, Audit: &audittest.Log{}, Log: slog.New(slog.DiscardHandler),
				Dial: func(context.Context, sandbox.Principal) (net.Conn, error) {
					ours, theirs := net.Pipe()
					go func() { _, _ = io.Copy(io.Discard, theirs) }()
					return ours, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			r := httptest.NewRequestWithContext(t.Context(), c.method, Path+"box/"+c.path, strings.NewReader(c.body))
			started, w := time.Now(), httptest.NewRecorder()
			x.ServeSession(w, r, session.Session{ID: "c1", Scope: session.Operator})
			if took := time.Since(started); took > c.limit || w.Code != http.StatusServiceUnavailable && w.Code != http.StatusGatewayTimeout {
				t.Errorf("%s %s: %d after %v: %s", c.method, c.path, w.Code, took, w.Body)
			}
		})
	}
}

// memoryListener is a listener with in-memory connections.
type memoryListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (m *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memoryListener) Close() error   { close(m.done); return nil }
func (m *memoryListener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }

// TestSlowProgramKeepsPageConnected checks that a page is not disconnected while its program is
// slow to read a pasted text.
func TestSlowProgramKeepsPageConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, s, _ := newHub(t)
		s.stuck = make(chan struct{})
		v := newViewer(t, h, "alice")
		if err := h.take(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		handlerDone := make(chan struct{})
		m := &memoryListener{make(chan net.Conn), make(chan struct{})}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(handlerDone)
			var err error
			if v.conn, err = websocket.Accept(w, r, nil); err != nil {
				t.Error(err)
				return
			}
			v.stream()
		})}
		go func() { _ = srv.Serve(m) }()
		defer srv.Close()
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			m.conns <- theirs
			return ours, nil
		}}
		conn, _, err := websocket.Dial(t.Context(), "ws://memory/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
		if err != nil {
			t.Fatal(err)
		}
		seen, readErr := make(chan string, 100), make(chan error, 1)
		go func() {
			for {
				kind, data, err := conn.Read(t.Context())
				if err != nil {
					readErr <- err
					return
				}
				if kind == websocket.MessageBinary {
					seen <- string(data)
				}
			}
		}()
		time.Sleep(pingEvery - 5*time.Second)
		if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("pasted")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		s.out <- []byte("later") // output must not wait for the input
		synctest.Wait()
		if len(seen) != 1 {
			t.Error("nothing is shown while the program does not read")
		}
		time.Sleep(inputTimeout - 10*time.Second)
		if len(readErr) > 0 {
			t.Fatalf("the page was cut off: %v", <-readErr)
		}
		close(s.stuck)
		if got := <-s.typed; got != "pasted" {
			t.Errorf("typed %q", got)
		}
		time.Sleep(2 * pingEvery)
		if len(readErr) > 0 {
			t.Fatalf("the page was cut off afterwards: %v", <-readErr)
		}
		v.cancel()
		<-handlerDone
		_ = conn.CloseNow() // it was closed by the other side
		<-readErr
	})
}

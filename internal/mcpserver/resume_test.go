package mcpserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/sandbox"
)

// rawSession is a session whose connections a test can break.
type rawSession struct {
	*testing.T
	addr                       string
	key, path, version, sessID string
}

func (p *testServer) rawSession(t *testing.T, key, path, version string) *rawSession {
	t.Helper()
	w := &rawSession{T: t, addr: p.addr, key: key, path: path, version: version}
	body := strings.Replace(hello, "2025-11-25", version, 1)
	resp := w.send(t.Context(), http.MethodPost, body, "")
	_, _ = io.Copy(io.Discard, resp.Body) // it is the header that counts
	resp.Body.Close()
	if w.sessID = resp.Header.Get("Mcp-Session-Id"); w.sessID == "" {
		t.Fatalf("no session: %s", resp.Status)
	}
	resp = w.send(t.Context(), http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	resp.Body.Close()
	return w
}

// send sends one request of the session.
func (w *rawSession) send(ctx context.Context, method, body, last string) *http.Response {
	w.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+w.addr+w.path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-API-Key": w.key,
		"Mcp-Protocol-Version": w.version, "Mcp-Session-Id": w.sessID, "Last-Event-ID": last,
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	return resp
}

// event is an event of a stream.
type event struct{ id, data string }

// readUntil reads events until it finds a given one, then breaks the connection.
func (w *rawSession) readUntil(method, body, last string, found func(event) bool) event {
	w.Helper()
	ctx, cut := context.WithCancel(w.Context())
	defer cut()
	resp := w.send(ctx, method, body, last)
	for resp.StatusCode == http.StatusConflict {
		resp.Body.Close() // the server has yet to see that the last one broke
		resp = w.send(ctx, method, body, last)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.Fatal(resp.Status)
	}
	var e event
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); {
		case name == "id":
			e.id = value
		case name == "data":
			e.data = value
		case name == "" && value == "" && found(e):
			return e
		case name == "":
			e.data = ""
		}
	}
	w.Fatalf("the stream ends: %v", lines.Err())
	return event{}
}

// status requests the missed events and returns only the HTTP status.
func (w *rawSession) status(last string) int {
	w.Helper()
	ctx, cut := context.WithCancel(w.Context())
	defer cut()
	resp := w.send(ctx, http.MethodGet, "", last)
	defer resp.Body.Close()
	return resp.StatusCode
}

func hasID(e event) bool { return e.id != "" }

func isResult(e event) bool { return strings.Contains(e.data, `"id":7`) }

const slow = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bash","_meta":{"progressToken":"p"},"arguments":{"command":` +
	`"echo begun; while [ ! -e /tmp/go%[1]d ]; do sleep 0.05; done; echo over; touch /tmp/gone%[1]d"}}}`

// A client whose connection broke during a long command gets the missed events, as often as it
// asks, and no other client does.
func TestBrokenStreamsAreResumed(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	other, _ := p.key("o")
	second := p.connectHTTP(key, "/mcp", "2025-11-25", nil)
	for i, version := range []string{"2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			second := &agent{t, second.ClientSession}
			w := p.rawSession(t, key, "/mcp", version)
			first := w.readUntil(http.MethodPost, fmt.Sprintf(slow, i), "", hasID)
			if version == "2025-11-25" && first.data != "" {
				t.Errorf("the first event has data: %+v", first)
			}
			// The stream is resumed while the command runs, and breaks once more.
			again := w.readUntil(http.MethodGet, "", first.id, func(e event) bool { return e.id != "" && e.id != first.id })
			if isResult(again) {
				t.Fatalf("a result before the end: %+v", again)
			}
			for name, c := range map[string]struct {
				w    *rawSession
				want int
			}{
				"another session":  {p.rawSession(t, key, "/mcp", version), http.StatusBadRequest},
				"another key":      {&rawSession{t, p.addr, other, "/mcp", version, w.sessID}, http.StatusNotFound},
				"another endpoint": {&rawSession{t, p.addr, key, "/mcp?tools=core", version, w.sessID}, http.StatusNotFound},
				"no key":           {&rawSession{t, p.addr, "", "/mcp", version, w.sessID}, http.StatusUnauthorized},
			} {
				if got := c.w.status(first.id); got != c.want {
					t.Errorf("%s: %d, not %d", name, got, c.want)
				}
			}
			second.do("bash", args{"command": fmt.Sprintf("touch /tmp/go%[1]d; while [ ! -e /tmp/gone%[1]d ]; do sleep 0.05; done", i)})
			for _, from := range []string{again.id, again.id, first.id} {
				got := w.readUntil(http.MethodGet, "", from, isResult)
				if !strings.Contains(got.data, `begun\nover\n`) {
					t.Errorf("after %s: %s", from, got.data)
				}
			}
			// A session's end is the end of all its streams.
			resp := w.send(t.Context(), http.MethodDelete, "", "")
			resp.Body.Close()
			if got := w.status(first.id); got != http.StatusNotFound {
				t.Errorf("after the session's end: %d", got)
			}
		})
	}
}

// breakingTransport cuts each connection on which it has read an event of a call, once.
type breakingTransport struct {
	bearer
	mu  sync.Mutex
	cut int
}

func (b *breakingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.bearer.RoundTrip(r)
	if err != nil || r.Method != http.MethodPost || r.Header.Get("Mcp-Session-Id") == "" {
		return resp, err
	}
	resp.Body = &breakingBody{ReadCloser: resp.Body, of: b}
	return resp, nil
}

type breakingBody struct {
	io.ReadCloser
	of  *breakingTransport
	had bool
}

func (b *breakingBody) Read(p []byte) (int, error) {
	if b.had {
		b.of.mu.Lock()
		b.of.cut++
		b.of.mu.Unlock()
		return 0, errors.Join(io.ErrUnexpectedEOF, b.Close())
	}
	n, err := b.ReadCloser.Read(p)
	b.had = n > 0
	return n, err
}

// A client that supports it resumes the stream by itself.
func TestClientsResumeStreams(t *testing.T) {
	p := newTestServer(t, sandbox.Settings{})
	key, _ := p.key("k")
	transport := &breakingTransport{bearer: bearer{key}}
	a := connect(t, &mcp.StreamableClientTransport{
		Endpoint: "http://" + p.addr + "/mcp", HTTPClient: &http.Client{Transport: transport}, DisableStandaloneSSE: true,
	}, "2025-11-25", nil)
	for i := range 3 {
		if got := a.do("bash", args{"command": fmt.Sprintf("sleep 0.5; echo %d", i)}); got.text != fmt.Sprintf("%d\n", i) {
			t.Errorf("bash: got %+v", got)
		}
	}
	if transport.cut < 3 {
		t.Errorf("%d connections were cut", transport.cut)
	}
}

// Package console_test signs in to the console of the built program, with real sandboxes, and makes
// the requests of its pages.
package console_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// browser is one signed-in session.
type browser struct {
	t      *testing.T
	base   string
	cookie string
	id     string
}

// signIn signs in with a one-time link, as a page does.
func signIn(t *testing.T, s *servetest.Server, name, scope string) *browser {
	t.Helper()
	link, err := s.Local(t).ConsoleLink(t.Context(), name, scope, time.Hour)
	// The server prints that it has started a moment before its socket is open.
	for limit := hosttest.Deadline(); errors.Is(err, crannog.ErrUnavailable) && time.Now().Before(limit); {
		link, err = s.Local(t).ConsoleLink(t.Context(), name, scope, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	base, token, ok := strings.Cut(link.URL, "/console/#token=")
	if !ok {
		t.Fatalf("the link is %q", link.URL)
	}
	b := &browser{t: t, base: base}
	res, body := b.do("POST", "/session", `{"token":"`+token+`"}`)
	if res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 {
		t.Fatalf("signing in: %s %s", res.Status, body)
	}
	b.cookie = res.Cookies()[0].String()
	b.cookie, _, _ = strings.Cut(b.cookie, ";")
	var session struct{ ID string }
	if err := json.Unmarshal(body, &session); err != nil || session.ID == "" {
		t.Fatalf("the session after signing in: got %s, %v", body, err)
	}
	b.id = session.ID
	return b
}

// request makes a request of the console's API as its page does.
func (b *browser) request(ctx context.Context, method, path, body string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, b.base+"/console/api"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Origin", b.base)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if b.cookie != "" {
		req.Header.Set("Cookie", b.cookie)
	}
	if body != "" && !strings.Contains(path, "/file?") {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// do makes a request and reads the whole answer.
func (b *browser) do(method, path, body string) (*http.Response, []byte) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	res := b.request(ctx, method, path, body)
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, data
}

// call makes a request that must succeed, and decodes the answer.
func (b *browser) call(method, path, body string, into any) []byte {
	b.t.Helper()
	res, data := b.do(method, path, body)
	if res.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %s %s", method, path, res.Status, data)
	}
	if into != nil {
		if err := json.Unmarshal(data, into); err != nil {
			b.t.Fatalf("%s %s: %s, %v", method, path, data, err)
		}
	}
	return data
}

// event is one event of a stream.
type event struct {
	name string
	id   string
	data []byte
}

// stream is a page's stream of events.
type stream struct {
	t      *testing.T
	name   string
	last   string // Last-Event-ID
	events chan event
	stop   func()
}

// follow opens a stream of events, after the event with the ID last if that is not empty.
func (b *browser) follow(query, last string) *stream {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"/console/api/events?"+query, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Cookie", b.cookie)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		b.t.Fatalf("open the stream of events: %s", res.Status)
	}
	s := &stream{t: b.t, events: make(chan event, 10_000)}
	ended := make(chan struct{})
	s.stop = func() { cancel(); <-ended }
	b.t.Cleanup(s.stop)
	go func() {
		defer close(ended)
		defer close(s.events)
		defer res.Body.Close()
		var e event
		for lines := bufio.NewReader(res.Body); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
			switch {
			case len(name) == 0 && e.data != nil:
				s.events <- e
				e = event{}
			case string(name) == "event":
				e.name = string(value)
			case string(name) == "data":
				e.data = value
			case string(name) == "id":
				e.id = string(value)
			}
		}
	}()
	var hello struct{ Stream string }
	if err := json.Unmarshal(s.await("hello").data, &hello); err != nil {
		b.t.Fatal(err)
	}
	s.name = hello.Stream
	return s
}

// await waits for an event that contains all the texts.
func (s *stream) await(name string, texts ...string) event {
	s.t.Helper()
	limit := hosttest.Late()
	var skipped []string // other events
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				s.t.Fatalf("the stream ended before %s %q", name, texts)
			}
			if e.id != "" {
				s.last = e.id
			}
			found := e.name == name
			for _, text := range texts {
				found = found && bytes.Contains(e.data, []byte(text))
			}
			if found {
				return e
			}
			skipped = append(skipped, e.name+" "+string(e.data))
		case <-limit:
			s.t.Fatalf("no event %s with %q arrived, but %d others: %.4000q", name, texts, len(skipped), skipped)
		}
	}
}

// requireClosed waits for the end of the stream.
func (s *stream) requireClosed() {
	s.t.Helper()
	limit := hosttest.Late()
	for {
		select {
		case _, more := <-s.events:
			if !more {
				return
			}
		case <-limit:
			s.t.Fatal("the stream did not end")
		}
	}
}

// screen is a page that shows a terminal.
type screen struct {
	t      *testing.T
	conn   *websocket.Conn
	output string
}

// attach opens a WebSocket to a terminal.
func (b *browser) attach(path string) *screen {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	conn, _, err := websocket.Dial(ctx, strings.Replace(b.base, "http", "ws", 1)+"/console/api"+path, &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {b.base}, "Cookie": {b.cookie}, "Sec-Fetch-Site": {"same-origin"}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	b.t.Cleanup(func() { conn.CloseNow() })
	return &screen{t: b.t, conn: conn}
}

// await reads until a message of a kind contains the text, or with no kind until the output does.
func (s *screen) await(kind, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	for kind != "" || !strings.Contains(s.output, text) {
		typ, data, err := s.conn.Read(ctx)
		if err != nil {
			s.t.Fatalf("waiting for %s %q: %v; the output so far is %q", kind, text, err, s.output)
		}
		if typ == websocket.MessageBinary {
			s.output += string(data)
		} else if kind != "" && strings.Contains(string(data), `"type":"`+kind+`"`) && strings.Contains(string(data), text) {
			return
		}
	}
}

func (s *screen) send(typ websocket.MessageType, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	if err := s.conn.Write(ctx, typ, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) sendMessage(text string) { s.t.Helper(); s.send(websocket.MessageText, text) }
func (s *screen) typeKeys(text string)    { s.t.Helper(); s.send(websocket.MessageBinary, text) }

// requireClosed waits for the end of the connection.
func (s *screen) requireClosed() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	for {
		if _, _, err := s.conn.Read(ctx); err != nil {
			if ctx.Err() != nil {
				s.t.Fatal("the connection did not end")
			}
			return
		}
	}
}

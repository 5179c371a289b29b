// Package console_test signs in to the console of the installed program, with real sandboxes, and
// does what its pages do.
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

// signIn uses a one-time link like a page.
func signIn(t *testing.T, s *servetest.Server, name, scope string) *browser {
	t.Helper()
	link, err := s.Local(t).ConsoleLink(t.Context(), name, scope, time.Hour)
	// The start block comes a moment before the socket.
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
		t.Fatalf("%s, %v", body, err)
	}
	b.id = session.ID
	return b
}

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

// ask is do for a request that must succeed.
func (b *browser) ask(method, path, body string, into any) []byte {
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
	t    *testing.T
	name string
	last string // Last-Event-ID
	in   chan event
	stop func()
}

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
		b.t.Fatalf("the stream is %s", res.Status)
	}
	s := &stream{t: b.t, in: make(chan event, 10_000)}
	ended := make(chan struct{})
	s.stop = func() { cancel(); <-ended }
	b.t.Cleanup(s.stop)
	go func() {
		defer close(ended)
		defer close(s.in)
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
				s.in <- e
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
	if err := json.Unmarshal(s.until("hello").data, &hello); err != nil {
		b.t.Fatal(err)
	}
	s.name = hello.Stream
	return s
}

// until waits for an event with all the texts.
func (s *stream) until(name string, texts ...string) event {
	s.t.Helper()
	limit := hosttest.Late()
	var skipped []string // what came instead
	for {
		select {
		case e, ok := <-s.in:
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
			s.t.Fatalf("no %s %q came, but %d others: %.4000q", name, texts, len(skipped), skipped)
		}
	}
}

// over waits for the end of the stream.
func (s *stream) over() {
	s.t.Helper()
	limit := hosttest.Late()
	for {
		select {
		case _, more := <-s.in:
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
	t    *testing.T
	conn *websocket.Conn
	seen string
}

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

// until reads until a message has the text, or with "" until the output has.
func (s *screen) until(kind, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	for kind != "" || !strings.Contains(s.seen, text) {
		typ, data, err := s.conn.Read(ctx)
		if err != nil {
			s.t.Fatalf("waiting for %s %q: %v; seen %q", kind, text, err, s.seen)
		}
		if typ == websocket.MessageBinary {
			s.seen += string(data)
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

func (s *screen) say(text string)      { s.t.Helper(); s.send(websocket.MessageText, text) }
func (s *screen) typeKeys(text string) { s.t.Helper(); s.send(websocket.MessageBinary, text) }

// over waits for the end of the connection.
func (s *screen) over() {
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

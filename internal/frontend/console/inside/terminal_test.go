package inside_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/frontend/console/inside"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// screen is a page that shows a terminal.
type screen struct {
	t    *testing.T
	conn *websocket.Conn
	seen string // output so far
	ctx  context.Context
}

func (s *stack) attach(t *testing.T, caller string, pid int, query string) *screen {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	t.Cleanup(cancel)
	at := strings.Replace(s.url, "http", "ws", 1) + inside.Path + s.sb.ID + fmt.Sprintf("/terminals/%d/attach", pid) + query
	conn, _, err := websocket.Dial(ctx, at, &websocket.DialOptions{HTTPHeader: http.Header{"Who": {caller}, "Origin": {s.url}}})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	return &screen{t: t, conn: conn, ctx: ctx}
}

// waitFor reads until a message of the given type arrives, or, for "", until the output contains
// the text.
func (s *screen) waitFor(kind, text string) map[string]any {
	s.t.Helper()
	for {
		if kind == "" && strings.Contains(s.seen, text) {
			return nil
		}
		typ, data, err := s.conn.Read(s.ctx)
		if err != nil {
			s.t.Fatalf("waiting for %s %q: %v; seen %q", kind, text, err, s.seen)
		}
		if typ == websocket.MessageBinary {
			s.seen += string(data)
			continue
		}
		var m map[string]any
		if err := json.Unmarshal(data, &m); err != nil {
			s.t.Fatal(err)
		}
		if kind != "" && m["type"] == kind && strings.Contains(string(data), text) {
			return m
		}
	}
}

func (s *screen) sendMessage(text string) {
	s.t.Helper()
	if err := s.conn.Write(s.ctx, websocket.MessageText, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) write(text string) {
	s.t.Helper()
	if err := s.conn.Write(s.ctx, websocket.MessageBinary, []byte(text)); err != nil {
		s.t.Fatal(err)
	}
}

// TestTwoViewersShareTerminal has two people watch one terminal: only the one with control can
// type, and both see the output. Then the other one takes control, and a viewer that attaches later
// gets the earlier output.
func TestTwoViewersShareTerminal(t *testing.T) {
	s := newStack(t)
	var term inside.Terminal
	s.request("alice/operator", "POST", "/terminals", `{"cols":90,"rows":30,"command":["/bin/sh"]}`, &term)
	a, b := s.attach(t, "alice/operator", term.PID, "?cols=100&rows=40"), s.attach(t, "bob/operator", term.PID, "")
	if m := a.waitFor("ready", ""); m["controller"] != nil || m["mine"] != false || m["cols"] != 90.0 || m["scope"] != "operator" {
		t.Errorf("first message to alice: got %v", m)
	}
	b.waitFor("ready", "")
	a.write("echo too-early\n")
	a.waitFor("error", "no_control")
	a.sendMessage(`{"type":"take"}`)
	a.waitFor("control", `"mine":true`)
	if m := b.waitFor("control", "alice"); m["mine"] != false {
		t.Errorf("message to bob: got %v", m)
	}
	b.waitFor("size", `"cols":100`)
	a.write("echo $((6*7))-$(stty size | tr ' ' x)\n")
	a.waitFor("", "42-40x100")
	b.waitFor("", "42-40x100")
	b.write("echo nothing\n")
	b.waitFor("error", "no_control")
	b.sendMessage(`{"type":"take"}`)
	b.waitFor("control", `"mine":true`)
	if m := a.waitFor("control", "bob"); m["mine"] != false {
		t.Errorf("message to alice: got %v", m)
	}
	a.write("echo displaced\n")
	a.waitFor("error", "no_control")
	b.write("printf 'by-%s\\n' bob\n")
	a.waitFor("", "by-bob")

	var list struct{ Terminals []inside.Terminal }
	s.request("bob/operator", "GET", "/terminals", "", &list)
	if len(list.Terminals) != 1 || list.Terminals[0].PID != term.PID || list.Terminals[0].Viewers != 2 || *list.Terminals[0].Controller != "bob" || !list.Terminals[0].Mine {
		t.Errorf("GET /terminals: got %+v", list)
	}
	v := s.attach(t, "eve/viewer", term.PID, "")
	v.waitFor("", "42-40x100")
	v.sendMessage(`{"type":"take"}`)
	v.waitFor("error", "scope_too_small")
	for _, bad := range []string{`{"type":"grab"}`, `x`, `{"type":"resize","cols":0,"rows":5}`, `{"type":"resize","cols":5,"rows":5000}`} {
		v.sendMessage(bad)
		v.waitFor("error", "")
	}
	b.sendMessage(`{"type":"release"}`)
	v.waitFor("control", `"controller":null`)
	b.sendMessage(`{"type":"take"}`)
	b.waitFor("control", `"mine":true`)
	b.write("exit 3\n")
	for _, each := range []*screen{a, b, v} {
		if m := each.waitFor("exit", ""); m["exit_code"] != 3.0 {
			t.Errorf("message about the exit: got %v", m)
		}
	}
	for _, secret := range []string{"too-early", "nothing", "displaced"} {
		if strings.Contains(a.seen+b.seen, secret) {
			t.Errorf("typed without control: %s", secret)
		}
	}
	var recorded []string
	for _, e := range s.entries(audit.TerminalControl) {
		recorded = append(recorded, e.Actor+" "+string(e.Data))
	}
	if len(recorded) != 4 || !strings.Contains(recorded[1], `"displaced":"console:alice"`) || !strings.Contains(recorded[2], "release") {
		t.Errorf("got audit entries %q, want take, take with displaced, release, take", recorded)
	}
	if n := len(s.entries(audit.CommandStarted)); n != 1 {
		t.Errorf("got %d command entries for three viewers, want 1", n)
	}
}

// TestTerminalOpenedElsewhere checks that a page can show a terminal that an SDK opened, and type
// into it. The program continues when the pages leave.
func TestTerminalOpenedElsewhere(t *testing.T) {
	s := newStack(t)
	before := runtime.NumGoroutine()
	header := http.Header{"X-Access-Token": {s.sb.AccessToken}, "E2b-Sandbox-Id": {s.sb.ID}, "E2b-Sandbox-Port": {"49983"}}
	transport := &http.Transport{}
	sdk := client.New(&http.Client{Transport: transport}, s.url, header)
	p, err := sdk.Start(t.Context(), client.Spec{Cmd: "/bin/cat", TTY: &client.Size{Cols: 80, Rows: 24}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 100)
	go func() { _, _ = p.Stream(chanWriter(out), nil); close(out) }()
	a := s.attach(t, "alice/operator", int(p.PID()), "")
	if m := a.waitFor("ready", ""); m["cols"] != 80.0 || m["rows"] != 24.0 {
		t.Errorf("first message: got %v", m)
	}
	b := s.attach(t, "bob/viewer", int(p.PID()), "")
	b.waitFor("ready", "")
	a.sendMessage(`{"type":"take"}`)
	a.waitFor("control", "true")
	a.write("meow\n")
	b.waitFor("", "meow\r\nmeow")
	a.conn.Close(websocket.StatusNormalClosure, "")
	b.conn.Close(websocket.StatusNormalClosure, "")
	if err := p.Write(t.Context(), []byte("still\n")); err != nil {
		t.Fatal(err)
	}
	seen := ""
	for !strings.Contains(seen, "still\r\nstill") {
		seen += <-out
	}
	c := s.attach(t, "alice/operator", int(p.PID()), "")
	c.waitFor("ready", "")
	c.sendMessage(`{"type":"take"}`)
	c.waitFor("control", "true")
	c.write("\x04")
	c.waitFor("exit", "")
	for range out {
	}
	if res, _ := s.do("alice/operator", "GET", fmt.Sprintf("/terminals/%d/attach", p.PID()), ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("attach after the end: got %s, want 404", res.Status)
	}
	transport.CloseIdleConnections()
	s.client.CloseIdleConnections()
	// Goroutines of the connections end within the timeout of idle connections.
	hosttest.EventuallyAtMost(t, "goroutines", before+20, runtime.NumGoroutine)
}

type chanWriter chan string

func (w chanWriter) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }

// TestForeignOriginCannotAttach checks that a page of another site cannot open a terminal, although
// the browser sends the console's cookie.
func TestForeignOriginCannotAttach(t *testing.T) {
	s := newStack(t)
	var term inside.Terminal
	s.request("alice/operator", "POST", "/terminals", `{"cols":80,"rows":24,"command":["/bin/cat"]}`, &term)
	at := strings.Replace(s.url, "http", "ws", 1) + inside.Path + s.sb.ID + fmt.Sprintf("/terminals/%d/attach", term.PID)
	for origin, ok := range map[string]bool{"https://evil.example": false, "null": false, s.url: true} {
		conn, res, err := websocket.Dial(t.Context(), at, &websocket.DialOptions{HTTPHeader: http.Header{"Who": {"alice/operator"}, "Origin": {origin}}})
		if (err == nil) != ok {
			t.Errorf("%s: %v", origin, err)
		}
		if err == nil {
			conn.CloseNow()
		} else if res.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", origin, res.Status)
		}
	}
	for _, body := range []string{`{"cols":0,"rows":1}`, `{"cols":80,"rows":24,"shell":"x"}`, `{"cols":80,"rows":24,"command":["/no/such"]}`} {
		if res, text := s.do("alice/operator", "POST", "/terminals", body); res.StatusCode < 400 || res.StatusCode >= 500 {
			t.Errorf("%s: %s %s", body, res.Status, text)
		}
	}
}

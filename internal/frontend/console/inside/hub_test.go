package inside

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/guest/client"
	"github.com/crannog/crannog/internal/sandbox"
)

// fakeProgram is a program whose output and input a test controls.
type fakeProgram struct {
	out   chan []byte
	typed chan string
	stuck chan struct{} // unless nil, Write blocks until it is closed
	sizes chan client.Size
	once  sync.Once
	shut  chan struct{}
}

func newFakeProgram() *fakeProgram {
	return &fakeProgram{out: make(chan []byte), typed: make(chan string, 100), sizes: make(chan client.Size, 100), shut: make(chan struct{})}
}

func (*fakeProgram) PID() uint32 { return 7 }
func (s *fakeProgram) Close()    { s.once.Do(func() { close(s.shut) }) }

func (s *fakeProgram) Stream(stdout, _ io.Writer) (client.Exit, error) {
	for {
		select {
		case b, ok := <-s.out:
			if !ok {
				return client.Exit{Code: 3}, nil
			}
			if _, err := stdout.Write(b); err != nil {
				return client.Exit{}, err
			}
		case <-s.shut:
			return client.Exit{}, errors.New("cut")
		}
	}
}

func (s *fakeProgram) Write(ctx context.Context, b []byte) error {
	if s.stuck != nil {
		select {
		case <-s.stuck:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.typed <- string(b)
	return nil
}

func (s *fakeProgram) Resize(_ context.Context, size client.Size) error { s.sizes <- size; return nil }

type unusedServices struct{}

func (unusedServices) Get(context.Context, sandbox.Principal, string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{}, errors.New("unused")
}

func (unusedServices) Census(context.Context, sandbox.Principal, string) (census.Census, error) {
	return census.Census{}, errors.New("unused")
}

func (unusedServices) SignalProcess(context.Context, sandbox.Principal, string, int, syscall.Signal) error {
	return errors.New("unused")
}

func newHub(t *testing.T) (*hub, *fakeProgram, *audittest.Log) {
	t.Helper()
	auditLog := &audittest.Log{}
	x, err := New(Deps{
		Sandboxes: unusedServices{}, Census: unusedServices{}, Audit: auditLog, Log: slog.New(slog.DiscardHandler),
		Dial: func(context.Context, sandbox.Principal) (net.Conn, error) { return nil, errors.New("unused") },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newFakeProgram()
	h, err := x.add(&hub{key: hubKey{"box", 7}, openedHere: true, prog: s, release: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); x.Close() })
	return h, s, auditLog
}

func newViewer(t *testing.T, h *hub, id string) *viewer {
	t.Helper()
	v := &viewer{hub: h, caller: session.Session{ID: id, Name: id + "'s", Scope: session.Operator}, changed: make(chan struct{}, 1)}
	v.ctx, v.cancel = context.WithCancel(t.Context())
	if err := h.enter(v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestOnlyControllerMayType checks that one viewer may type at a time, and only after the audit log
// has the entry. A displaced viewer cannot type any more.
func TestOnlyControllerMayType(t *testing.T) {
	h, s, auditLog := newHub(t)
	alice, bob := newViewer(t, h, "alice"), newViewer(t, h, "bob")
	if err := h.input(alice, []byte("x")); fault.CodeOf(err) != "no_control" {
		t.Errorf("typing without control: got %v, want no_control", err)
	}
	if err := h.resize(alice, client.Size{Cols: 1, Rows: 1}); fault.CodeOf(err) != "no_control" {
		t.Errorf("resizing without control: got %v, want no_control", err)
	}
	auditLog.Fail(func(audit.Draft) bool { return true })
	if err := h.take(t.Context(), alice); fault.CodeOf(err) != "record_unavailable" {
		t.Errorf("taking control without an audit entry: got %v, want record_unavailable", err)
	}
	if err := h.input(alice, []byte("x")); fault.CodeOf(err) != "no_control" {
		t.Errorf("typing after a failed take: got %v, want no_control", err)
	}
	auditLog.Fail(nil)
	if err := h.take(t.Context(), alice); err != nil {
		t.Fatal(err)
	}
	auditLog.Crash() // loses entries that are not on disk yet
	if err := h.input(alice, []byte("ls\n")); err != nil || <-s.typed != "ls\n" {
		t.Errorf("input: got error %v", err)
	}
	s.stuck = make(chan struct{})
	late := make(chan error, 1)
	go func() { late <- h.input(alice, []byte("rm -rf /\n")) }()
	if err := h.take(t.Context(), bob); err != nil {
		t.Fatal(err)
	}
	if err := <-late; fault.CodeOf(err) != "no_control" {
		t.Errorf("pending input of the displaced viewer: got %v, want no_control", err)
	}
	s.stuck = nil
	if err := h.input(bob, bytes.Repeat([]byte("y"), 2*maxInputChunk+1)); err != nil || len(<-s.typed)+len(<-s.typed)+len(<-s.typed) != 2*maxInputChunk+1 {
		t.Errorf("input of two chunks and a byte: got error %v", err)
	}
	if err := h.resize(bob, client.Size{Cols: 100, Rows: 40}); err != nil || <-s.sizes != (client.Size{Cols: 100, Rows: 40}) {
		t.Errorf("resize: got error %v", err)
	}
	if err := h.input(alice, []byte("x")); fault.CodeOf(err) != "no_control" {
		t.Errorf("typing of the displaced viewer: got %v, want no_control", err)
	}
	h.leave(bob)
	var recorded []string
	for _, e := range auditLog.Entries(audit.TerminalControl) {
		recorded = append(recorded, e.Actor+string(e.Data))
	}
	want := []string{
		`console:alice{"pid":7,"do":"take"}`, `console:bob{"pid":7,"do":"take","displaced":"console:alice"}`, `console:bob{"pid":7,"do":"release","left":true}`,
	}
	if !slices.Equal(recorded, want) {
		t.Errorf("got audit entries %q, want %q", recorded, want)
	}
	if len(s.typed) != 0 {
		t.Errorf("the program got unexpected input %q", <-s.typed)
	}
}

// TestSlowViewerIsDisconnected checks that a viewer that does not read is disconnected, and delays
// neither the program nor another viewer.
func TestSlowViewerIsDisconnected(t *testing.T) {
	h, s, _ := newHub(t)
	slow, fast := newViewer(t, h, "slow"), newViewer(t, h, "fast")
	var seen int
	chunk := bytes.Repeat([]byte("z"), 60<<10)
	for range 40 {
		s.out <- chunk // taken at once
		<-fast.changed
		out, _, code, why := fast.next()
		if code != 0 {
			t.Fatalf("the viewer was closed: %v", why)
		}
		for _, m := range out {
			if bytes.HasPrefix(m.data, []byte("z")) {
				seen += len(m.data)
			}
		}
	}
	if seen != 40*len(chunk) {
		t.Errorf("the fast viewer got %d of %d bytes", seen, 40*len(chunk))
	}
	out, _, code, _ := slow.next()
	if code == 0 || !strings.Contains(string(out[len(out)-1].data), "too_slow") {
		t.Errorf("the slow viewer got code %d and %v, want too_slow", code, out)
	}
	if h.mu.Lock(); cap(h.out.buf) > 4*maxLag {
		t.Errorf("the hub buffers %d bytes, want at most 4*maxLag", cap(h.out.buf))
	}
	h.mu.Unlock()
}

// TestLateViewerGetsReplayAndExitCode checks that a viewer that attaches later gets the last
// output, from the beginning of a line, and the exit code.
func TestLateViewerGetsReplayAndExitCode(t *testing.T) {
	h, s, _ := newHub(t)
	first := newViewer(t, h, "first")
	line := append(bytes.Repeat([]byte("w"), 99), '\n')
	for range 40 {
		s.out <- bytes.Repeat(line, 100)
	}
	for all := int64(40 * 100 * len(line)); ; {
		<-first.changed
		h.mu.Lock()
		printed := h.out.end
		h.mu.Unlock()
		if printed == all {
			break // the hub has stored all output
		}
	}
	late := newViewer(t, h, "late")
	out, _, _, _ := late.next()
	if !strings.Contains(string(out[0].data), `"type":"ready"`) || !strings.Contains(string(out[0].data), `"controller":null`) {
		t.Errorf("got first message %s, want ready without a controller", out[0].data)
	}
	got := len(out[1].data)
	if !bytes.HasPrefix(out[1].data, line) {
		t.Errorf("the replay begins with %.20q, want a whole line", out[1].data)
	}
	for more := true; more; {
		out, more, _, _ = late.next()
		for _, m := range out {
			got += len(m.data)
		}
	}
	if got > scrollback || got < scrollback-2*len(line) {
		t.Errorf("got %d replayed bytes, want about %d", got, scrollback)
	}
	close(s.out)
	for code := 0; code == 0; {
		<-late.changed
		out, _, c, _ := late.next()
		if code = int(c); code != 0 && !strings.Contains(string(out[len(out)-1].data), `{"type":"exit","exit_code":3}`) {
			t.Errorf("got last message %s, want exit code 3", out[len(out)-1].data)
		}
	}
	if h.x.find(h.key) != nil {
		t.Error("the hub of an ended terminal is still registered")
	}
}

// TestUnwatchedForeignTerminalIsReleased checks that the hub of a terminal that another caller
// opened is removed with its last viewer.
func TestUnwatchedForeignTerminalIsReleased(t *testing.T) {
	h, s, _ := newHub(t)
	h.openedHere = false
	v, w := newViewer(t, h, "v"), newViewer(t, h, "w")
	h.leave(v)
	if h.x.find(h.key) != h {
		t.Error("the hub was removed although it has a viewer")
	}
	h.leave(w)
	<-s.shut
	if h.x.find(h.key) != nil {
		t.Error("the hub without viewers is still registered")
	}
	if err := h.enter(v); !errors.Is(err, errClosing) {
		t.Errorf("entering a closing hub: got %v, want errClosing", err)
	}
}

// TestViewerAttachesWhileHubCloses checks that a viewer that attaches while the last one leaves
// gets a new stream of the same terminal.
func TestViewerAttachesWhileHubCloses(t *testing.T) {
	h, _, _ := newHub(t)
	h.mu.Lock()
	h.openedHere, h.closing = false, true // the state in the middle of leave
	h.mu.Unlock()
	if h.x.find(h.key) != nil {
		t.Error("find returned a hub that accepts no viewers")
	}
	s := newFakeProgram()
	t.Cleanup(s.Close)
	next := &hub{key: h.key, prog: s, release: func() {}}
	if got, err := h.x.add(next); got != next || err != nil {
		t.Fatalf("adding a hub: got %v, %v", got, err)
	}
	newViewer(t, next, "v")
	if h.x.find(h.key) != next {
		t.Error("find does not return the new hub")
	}
}

// TestTerminalsAndViewersAreLimited opens as many terminals and viewers as allowed, and one more.
func TestTerminalsAndViewersAreLimited(t *testing.T) {
	h, _, _ := newHub(t)
	for range maxViewers {
		newViewer(t, h, "v")
	}
	if err := h.enter(&viewer{}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one viewer too many: got error %v", err)
	}
	for i := 1; i < maxHubsPerSandbox; i++ {
		s := newFakeProgram()
		t.Cleanup(s.Close)
		if _, err := h.x.add(&hub{key: hubKey{"box", 100 + i}, openedHere: true, prog: s, release: func() {}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.x.add(&hub{key: hubKey{"box", 9}, openedHere: true}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("one terminal too many: got error %v", err)
	}
}

// TestCPURates checks that rates are computed from the time between two measurements, even if two
// people request them at once. A process with a reused PID is another process.
func TestCPURates(t *testing.T) {
	var r rates
	now := time.Now()
	p := census.Process{PID: 5, Start: 1, CPU: time.Second}
	if got := r.shares("a", []census.Process{p}, now); len(got) != 0 {
		t.Errorf("first measurement: got rates %v, want none", got)
	}
	p.CPU += 500 * time.Millisecond
	if got := r.shares("a", []census.Process{p}, now.Add(time.Second)); got[idOf(p)] != 0.5 {
		t.Errorf("CPU shares: got %v", got)
	}
	if got := r.shares("a", []census.Process{p}, now.Add(1100*time.Millisecond)); got[idOf(p)] != 0.5 {
		t.Errorf("measurement shortly after: got rates %v, want 0.5", got)
	}
	q := census.Process{PID: 5, Start: 9, CPU: 200 * time.Millisecond}
	if got := r.shares("a", []census.Process{q}, now.Add(2*time.Second)); got[idOf(q)] != 0.2 {
		t.Errorf("new process with the same PID: got rates %v, want 0.2", got)
	}
	if got := r.shares("a", []census.Process{q}, now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("after an hour: got rates %v, want none", got)
	}
}

// TestAttachmentEscapesFileName checks that a file is always downloaded, whatever its name
// contains.
func TestAttachmentEscapesFileName(t *testing.T) {
	for name, want := range map[string]string{
		"a.txt": "attachment; filename=a.txt", "x\r\nSet-Cookie: a": `attachment; filename="x__Set-Cookie: a"`, "a\u202egpj.exe": "attachment; filename=a_gpj.exe",
		"": "attachment; filename=file", "é": "attachment; filename*=utf-8''%C3%A9", `a"b\c`: "attachment; filename=a_b_c",
	} {
		if got := attachment(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}

// FuzzReadLine checks that lines of the interpreter are converted to known lines, or dropped.
func FuzzReadLine(f *testing.F) {
	for _, s := range []string{
		`{"type":"stdout","text":"x\n"}`, `{"type":"result","is_main_result":true,"text":"1","png":"AAAA","html":null,"evil":"x"}`, `{"type":"end_of_execution"}`,
		`{"type":"number_of_executions","execution_count":-3}`, `{"type":"error","name":5}`, `[]`, "\xff",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		next, count, over := readLine(line)
		if over && next != nil || count < 0 {
			t.Errorf("%q: %v, %d, %t", line, next, count, over)
		}
		if r, ok := next.(cellResult); ok {
			for form := range r.Data {
				if !strings.Contains(form, "/") {
					t.Errorf("%q is shown as %q", line, form)
				}
			}
		}
	})
}

// FuzzScroll checks the bounds of the buffer and of the replay.
func FuzzScroll(f *testing.F) {
	f.Add(10, 300000, 2)
	f.Add(3<<20, 1, 1)
	f.Fuzz(func(t *testing.T, a, b, n int) {
		if a < 0 || b < 0 || n < 0 || a > 4<<20 || b > 4<<20 || n > 8 {
			return
		}
		var s scroll
		for range n {
			s.add(bytes.Repeat([]byte("a"), a))
			s.add(bytes.Repeat([]byte("b\n"), b/2))
		}
		if at := s.replay(); at < s.start() || at > s.end || s.end-at > scrollback {
			t.Errorf("replay at %d of %d to %d", at, s.start(), s.end)
		}
		if len(s.buf) > 2*maxLag {
			t.Errorf("%d bytes", len(s.buf))
		}
	})
}

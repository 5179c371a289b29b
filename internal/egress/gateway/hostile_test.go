package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// rawPeer is a connection to the process that has not sent anything.
func rawPeer(t testing.TB, dir string) *peer {
	t.Helper()
	p := newPeer(dialSocket(t, dir), false, func(context.Context, string, json.RawMessage, []*os.File) (any, error) { return nil, nil })
	done := make(chan struct{})
	go func() { defer close(done); _ = p.serve() }()
	t.Cleanup(func() { p.conn.Close(); <-done })
	return p
}

func dialSocket(t testing.TB, dir string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(dir, dirName, socketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn)
}

// pair is two ends of a stream.
func pair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return ends[0], ends[1]
}

func framed(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

var hostileFrames = map[string][]byte{
	"a length beyond the limit": binary.BigEndian.AppendUint32(nil, maxFrame+1),
	"the greatest length":       {0xff, 0xff, 0xff, 0xff},
	"no JSON":                   framed("hello"),
	"an empty frame":            framed(""),
	"neither request nor reply": framed("{}"),
	"an unknown field":          framed(`{"id":1,"call":"hello","extra":1}`),
	"something after it":        framed(`{"id":1,"call":"list"} {}`),
	"a request that failed":     framed(`{"id":1,"call":"list","error":{"kind":"internal","code":"x","text":"y"}}`),
	"a negative number":         framed(`{"id":-1,"call":"list"}`),
	"an unknown notice":         framed(`{"call":"no such notice"}`),
	"a bad cancel":              framed(`{"call":"cancel","body":{"id":"x"}}`),
	"one number twice":          append(framed(`{"id":1,"call":"test-wait"}`), framed(`{"id":1,"call":"test-wait"}`)...),
}

// A violation of the protocol ends its own connection and no other.
func TestHostileFramesEndTheConnection(t *testing.T) {
	hosttest.Need(t, hosttest.Root) // to see what the process has open
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	before := descriptors(t, c.Info().PID)
	for name, data := range hostileFrames {
		if name == "one number twice" {
			continue // the process has no call that waits
		}
		conn := dialSocket(t, dir)
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(hosttest.Deadline())
		if rest, err := io.ReadAll(conn); err != nil && !errors.Is(err, unix.ECONNRESET) || bytes.Contains(rest, []byte("welcome")) {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
	}
	// More files than a message may have, and files where none are allowed.
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, n := range map[string]int{"many files": 200, "three files": 3} {
		conn := dialSocket(t, dir)
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		if _, _, err := conn.WriteMsgUnix(framed(`{"id":1,"call":"hello","body":{}}`), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(hosttest.Deadline())
		if rest, err := io.ReadAll(conn); err != nil && !errors.Is(err, unix.ECONNRESET) || len(rest) > 0 {
			t.Errorf("%s: %q, %v", name, rest, err)
		}
	}
	p := rawPeer(t, dir)
	if err := p.call(t.Context(), callHello, hello{Oldest: oldest, Version: version}, &json.RawMessage{}, null); err != nil {
		t.Errorf("hello with a file: %v", err)
	}
	// Control: this peer gets an answer.
	if err := p.call(t.Context(), callList, struct{}{}, &listReply{}); err != nil {
		t.Errorf("list: %v", err)
	}
	p.conn.Close()
	hosttest.NoMore(t, "descriptors of the process", before, func() int { return descriptors(t, c.Info().PID) })
	wantGet(t, b, "/hello", 200)
}

// attachWith sends an attach request unchanged.
func attachWith(t *testing.T, p *peer, body any, files ...*os.File) error {
	t.Helper()
	return p.call(t.Context(), callAttach, body, &attachReply{}, files...)
}

func TestBadAttachmentsAreRefused(t *testing.T) {
	hosttest.Need(t, hosttest.Root) // to see what the process has open
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	p := rawPeer(t, dir)
	if err := p.call(t.Context(), callHello, hello{Oldest: oldest, Version: version}, &json.RawMessage{}); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t, c.Info().PID)
	good := attachBody{Sandbox: "box1", Policy: documents(t)}
	record := func(flags int) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, "record"), flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	link := func() *os.File {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fds[1])
		f := os.NewFile(uintptr(fds[0]), "link")
		t.Cleanup(func() { f.Close() })
		return f
	}
	adding := record(os.O_WRONLY | os.O_APPEND)
	badID, noPolicy := good, good
	badID.Sandbox = "../box"
	noPolicy.Policy[0].Kind = "nonsense"
	noPolicy.Policy = append(noPolicy.Policy, noPolicy.Policy[0])
	good.Policy = documents(t)
	for name, err := range map[string]error{
		"an ID with a path":      attachWith(t, p, badID, link(), adding),
		"a layer of no kind":     attachWith(t, p, noPolicy, link(), adding),
		"no files":               attachWith(t, p, good),
		"one file":               attachWith(t, p, good, link()),
		"a file for a link":      attachWith(t, p, good, adding, adding),
		"a socket for a record":  attachWith(t, p, good, link(), link()),
		"a record to write over": attachWith(t, p, good, link(), record(os.O_WRONLY)),
		"a record to read":       attachWith(t, p, good, link(), record(os.O_RDWR|os.O_APPEND)),
		"an unknown field":       attachWith(t, p, map[string]any{"sandbox": "box1", "unlimited": true}, link(), adding),
	} {
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("list %+v, %v", list, err)
	}
	hosttest.NoMore(t, "descriptors of the process", before, func() int { return descriptors(t, c.Info().PID) })
	// Positive control.
	end, ours := link(), recordFile(t, dir, "box1")
	_ = end
	if _, _, err := c.Attach(t.Context(), Attachment{Sandbox: "box1", Policy: documents(t), Record: ours}); err != nil {
		t.Error(err)
	}
}

// A process that was taken over can only send approval requests, and only for the sandboxes of the
// controller that receives them.
func TestTheProcessIsNotTrusted(t *testing.T) {
	ours, theirs := pair(t)
	asked := 0
	c := &Client{events: newQueue(nil), answered: map[string]bool{"box1": true}, approver: askFunc(func(context.Context, egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		asked++
		return egress.ApprovalOutcome{State: "denied"}, nil
	})}
	c.peer = newPeer(ours, false, c.handle)
	go func() { _ = c.peer.serve() }()
	p := newPeer(theirs, true, nil)
	go func() { _ = p.serve() }()
	ask := func(sandbox string) error {
		var a egress.ApprovalOutcome
		return p.call(t.Context(), callAsk, askBody{Question: egress.ApprovalRequest{Sandbox: sandbox}, Wait: time.Hour}, &a)
	}
	if err := ask("box1"); err != nil || asked != 1 {
		t.Errorf("an own sandbox: %v, asked %d times", err, asked)
	}
	if err := ask("box2"); fault.KindOf(err) != fault.NotFound || asked != 1 {
		t.Errorf("another's sandbox: %v, asked %d times", err, asked)
	}
	for _, call := range []string{callAttach, callDetach, callRetire, "exec"} {
		if err := p.call(t.Context(), call, struct{}{}, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v", call, err)
		}
	}
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := descriptors(t, os.Getpid())
	var a egress.ApprovalOutcome
	if err := p.call(t.Context(), callAsk, askBody{Question: egress.ApprovalRequest{Sandbox: "box1"}}, &a, null); err != nil {
		t.Error(err)
	}
	if after := descriptors(t, os.Getpid()); after > before {
		t.Errorf("the client accepted a file: %d descriptors, then %d", before, after)
	}
	for name, data := range hostileFrames {
		if name == "a length beyond the limit" {
			if _, err := theirs.Write(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case <-c.Done():
	case <-hosttest.Late():
		t.Error("a hostile frame does not end the connection")
	}
}

func TestTwoRequestsOfOneNumber(t *testing.T) {
	ours, theirs := pair(t)
	p := newPeer(ours, false, func(ctx context.Context, _ string, _ json.RawMessage, _ []*os.File) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if _, err := theirs.Write(hostileFrames["one number twice"]); err != nil {
		t.Fatal(err)
	}
	if err := p.serve(); err == nil || !strings.Contains(err.Error(), "two requests with one number") {
		t.Errorf("ended with %v", err)
	}
}

// Sandboxes with the maximum number of open requests do not break the connection.
func TestTooManyRequests(t *testing.T) {
	ours, theirs := pair(t)
	release := make(chan struct{})
	busy := newPeer(ours, false, func(context.Context, string, json.RawMessage, []*os.File) (any, error) {
		<-release
		return struct{}{}, nil
	})
	p := newPeer(theirs, false, nil)
	go func() { _ = busy.serve() }()
	go func() { _ = p.serve() }()
	errs := make(chan error)
	for range maxServing + 10 {
		go func() { errs <- p.call(t.Context(), callAsk, struct{}{}, nil) }()
	}
	for range 10 {
		if err := <-errs; fault.KindOf(err) != fault.Exhausted {
			t.Fatalf("beyond the limit: %v", err)
		}
	}
	close(release)
	for range maxServing {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, data := range hostileFrames {
		if len(data) > 4 {
			f.Add(data[4:])
		}
	}
	f.Add([]byte(`{"id":1,"call":"attach","body":{"sandbox":"a","policy":[],"seq":0}}`))
	f.Add([]byte(`{"id":7,"error":{"kind":"invalid","code":"c","text":"t"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := decode(data)
		if err != nil {
			return
		}
		// A decoded frame encodes to the same frame.
		again, err := encode(frame)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again[4:])
		if err != nil || back.ID != frame.ID || back.Call != frame.Call || (back.Error == nil) != (frame.Error == nil) {
			t.Fatalf("%q became %+v, %v", data, back, err)
		}
	})
}

// A peer may send anything. The process reads it to the end and stores nothing.
func FuzzPeer(f *testing.F) {
	for _, data := range hostileFrames {
		f.Add(data)
	}
	f.Add(framed(`{"id":1,"call":"hello","body":{"oldest":1,"version":1,"build":""}}`))
	s := &server{about: hello{Oldest: oldest, Version: version}, peers: map[*peer]*controller{}, sandboxes: map[string]*attachedSandbox{}, end: make(chan struct{})}
	s.ending = true // so that no fuzzed retire closes end twice
	f.Fuzz(func(t *testing.T, data []byte) {
		ours, theirs := pair(t)
		c := &controller{server: s}
		c.peer = newPeer(ours, true, c.handle)
		go func() { _, _ = io.Copy(io.Discard, theirs) }()
		go func() {
			_, _ = theirs.Write(data)
			_ = theirs.CloseWrite()
		}()
		if err := c.peer.serve(); err == nil {
			t.Fatal("serve ends without a reason")
		}
		if len(c.peer.serving) > 0 || len(s.sandboxes) > 0 {
			t.Fatal("something is left")
		}
	})
}

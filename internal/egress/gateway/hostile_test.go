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

// rawPeer returns a connection to the process on which nothing has been sent.
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

// pair returns the two ends of a stream.
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

func withLength(text string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

var hostileFrames = map[string][]byte{
	"a length beyond the limit": binary.BigEndian.AppendUint32(nil, maxFrame+1),
	"the greatest length":       {0xff, 0xff, 0xff, 0xff},
	"no JSON":                   withLength("hello"),
	"empty frame":               withLength(""),
	"neither request nor reply": withLength("{}"),
	"unknown field":             withLength(`{"id":1,"call":"hello","extra":1}`),
	"data after the message":    withLength(`{"id":1,"call":"list"} {}`),
	"request with an error":     withLength(`{"id":1,"call":"list","error":{"kind":"internal","code":"x","text":"y"}}`),
	"negative number":           withLength(`{"id":-1,"call":"list"}`),
	"unknown notice":            withLength(`{"call":"no such notice"}`),
	"invalid cancel":            withLength(`{"call":"cancel","body":{"id":"x"}}`),
	"repeated number":           append(withLength(`{"id":1,"call":"test-wait"}`), withLength(`{"id":1,"call":"test-wait"}`)...),
}

// A violation of the protocol ends its own connection and no other one.
func TestHostileFramesEndConnection(t *testing.T) {
	hosttest.Need(t, hosttest.Root) // to see what the process has open
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	before := descriptors(t, c.Info().PID)
	for name, data := range hostileFrames {
		if name == "repeated number" {
			continue // the process has no call that waits
		}
		conn := dialSocket(t, dir)
		if _, err := conn.Write(data); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(hosttest.Deadline())
		if rest, err := io.ReadAll(conn); err != nil && !errors.Is(err, unix.ECONNRESET) || bytes.Contains(rest, []byte("welcome")) {
			t.Errorf("%s: the connection returned %q, %v, want its end", name, rest, err)
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
		if _, _, err := conn.WriteMsgUnix(withLength(`{"id":1,"call":"hello","body":{}}`), unix.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(hosttest.Deadline())
		if rest, err := io.ReadAll(conn); err != nil && !errors.Is(err, unix.ECONNRESET) || len(rest) > 0 {
			t.Errorf("%s: the connection returned %q, %v, want its end", name, rest, err)
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
	hosttest.EventuallyAtMost(t, "descriptors of the process", before, func() int { return descriptors(t, c.Info().PID) })
	wantGet(t, b, "/hello", 200)
}

// attachWith sends an attach request unchanged.
func attachWith(t *testing.T, p *peer, body any, files ...*os.File) error {
	t.Helper()
	return p.call(t.Context(), callAttach, body, &attachReply{}, files...)
}

func TestAttachRejectsInvalidRequests(t *testing.T) {
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
	appendOnly := record(os.O_WRONLY | os.O_APPEND)
	badID, noPolicy := good, good
	badID.Sandbox = "../box"
	noPolicy.Policy[0].Kind = "nonsense"
	noPolicy.Policy = append(noPolicy.Policy, noPolicy.Policy[0])
	good.Policy = documents(t)
	for name, err := range map[string]error{
		"ID with a path":             attachWith(t, p, badID, link(), appendOnly),
		"layer of an unknown kind":   attachWith(t, p, noPolicy, link(), appendOnly),
		"no files":                   attachWith(t, p, good),
		"one file":                   attachWith(t, p, good, link()),
		"regular file as the link":   attachWith(t, p, good, appendOnly, appendOnly),
		"socket as the flow file":    attachWith(t, p, good, link(), link()),
		"flow file without O_APPEND": attachWith(t, p, good, link(), record(os.O_WRONLY)),
		"readable flow file":         attachWith(t, p, good, link(), record(os.O_RDWR|os.O_APPEND)),
		"unknown field":              attachWith(t, p, map[string]any{"sandbox": "box1", "unlimited": true}, link(), appendOnly),
	} {
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("attach with %s: got %v, want Invalid", name, err)
		}
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List = %+v, %v, want no sandboxes", list, err)
	}
	hosttest.EventuallyAtMost(t, "descriptors of the process", before, func() int { return descriptors(t, c.Info().PID) })
	// Control: a valid request is accepted.
	if _, _, err := c.Attach(t.Context(), Attachment{Sandbox: "box1", Policy: documents(t), Record: recordFile(t, dir, "box1")}); err != nil {
		t.Error(err)
	}
}

// A process that was taken over can only send approval requests, and only for the sandboxes of the
// controller that receives them.
func TestClientDoesNotTrustProcess(t *testing.T) {
	ours, theirs := pair(t)
	asked := 0
	c := &Client{events: newQueue(nil), controlled: map[string]bool{"box1": true}, approver: askFunc(func(context.Context, egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
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
		t.Errorf("request for a sandbox of this controller: %v, the approver was called %d times, want once", err, asked)
	}
	if err := ask("box2"); fault.KindOf(err) != fault.NotFound || asked != 1 {
		t.Errorf("request for another controller's sandbox: %v, the approver was called %d times, want once", err, asked)
	}
	for _, call := range []string{callAttach, callDetach, callRetire, "exec"} {
		if err := p.call(t.Context(), call, struct{}{}, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("call %s: got %v, want Invalid", call, err)
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

func TestRepeatedRequestNumberEndsConnection(t *testing.T) {
	ours, theirs := pair(t)
	p := newPeer(ours, false, func(ctx context.Context, _ string, _ json.RawMessage, _ []*os.File) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if _, err := theirs.Write(hostileFrames["repeated number"]); err != nil {
		t.Fatal(err)
	}
	if err := p.serve(); err == nil || !strings.Contains(err.Error(), "two requests with one number") {
		t.Errorf("serve returned %v, want an error about the number", err)
	}
}

// More concurrent requests than the limit do not break the connection.
func TestConcurrentRequestsAreLimited(t *testing.T) {
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
			t.Fatalf("a request beyond the limit: got %v, want Exhausted", err)
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
		// A decoded frame can be encoded and decoded again.
		again, err := encode(frame)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decode(again[4:])
		if err != nil || back.ID != frame.ID || back.Call != frame.Call || (back.Error == nil) != (frame.Error == nil) {
			t.Fatalf("%q became %+v, %v after encoding and decoding", data, back, err)
		}
	})
}

// A peer may send arbitrary bytes. The process reads them to the end and stores nothing.
func FuzzPeer(f *testing.F) {
	for _, data := range hostileFrames {
		f.Add(data)
	}
	f.Add(withLength(`{"id":1,"call":"hello","body":{"oldest":1,"version":1,"build":""}}`))
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
			t.Fatal("serve returned no error")
		}
		if len(c.peer.serving) > 0 || len(s.sandboxes) > 0 {
			t.Fatalf("%d requests and %d sandboxes are left", len(c.peer.serving), len(s.sandboxes))
		}
	})
}

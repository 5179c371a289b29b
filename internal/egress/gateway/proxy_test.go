package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// granter approves every request that it gets.
type granter struct{ asked chan egress.ApprovalRequest }

// Ask implements egress.Approver.
func (o granter) Ask(_ context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	o.asked <- q
	return egress.ApprovalOutcome{Granted: true, State: "approved", Approval: "a1"}, nil
}

func attachProxy(t *testing.T, o Options) (c *Client, dir string, s attachmenttest.Socket) {
	t.Helper()
	dir = newEnvironment(t)
	c = mustConnect(t, dir, o)
	link, s := attachmenttest.ListenProxy(t)
	a := testAttachment(t, dir, "box1")
	a.Kind, a.Link = egress.Proxy, link
	if sb, _, err := c.Attach(t.Context(), a); err != nil || sb != nil {
		t.Fatalf("Attach returned %v %v, want no end and no error", sb, err)
	}
	link.Close()
	return c, dir, s
}

// recordsAfterDetach returns the flow entries of a sandbox that has no network any more.
func recordsAfterDetach(t *testing.T, c *Client, dir string) []egress.Record {
	t.Helper()
	if err := c.Detach(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	if left, err := c.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("attached sandboxes after Detach: %v %v, want none", left, err)
	}
	return readRecords(t, dir, "box1")
}

// The policy, approvals and flow entries for a program that has only a socket are the same as for
// one with a network. The test uses the confined process.
func TestProxyAppliesPolicy(t *testing.T) {
	approver := granter{asked: make(chan egress.ApprovalRequest, 8)}
	c, dir, s := attachProxy(t, Options{Asker: approver})
	client := s.Client(t)
	for path, want := range map[string]int{"http://api.test/hello": 200, "http://other.test/": 403, "http://93.184.216.34:81/": 403, "http://api.test/ask": 200} {
		r, err := client.Get(path)
		if err != nil {
			t.Fatalf("GET %s: %v", path, err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want || want == 403 && !strings.Contains(string(body), "\"denied\"") {
			t.Errorf("GET %s: got %d %s, want %d", path, r.StatusCode, body, want)
		}
	}
	if q := <-approver.asked; q.Kind != egress.AskRequest || q.Sandbox != "box1" {
		t.Errorf("approval request: got %+v", q)
	}
	records := recordsAfterDetach(t, c, dir)
	for what, matches := range map[string]func(egress.Record) bool{
		"the request": func(r egress.Record) bool {
			return r.Kind == egress.KindHTTP && r.Host == "api.test" && r.Path == "/hello" && r.Status == 200 && r.Effect == egress.Allow
		},
		"the name that is denied": func(r egress.Record) bool {
			return r.Host == "other.test" && r.Effect == egress.Deny && r.Status == 403
		},
		"the address that is denied": func(r egress.Record) bool { return r.Port == 81 && r.Effect == egress.Deny },
		"the approval":               func(r egress.Record) bool { return r.Path == "/ask" && r.Approval == "a1" && r.Status == 200 },
	} {
		if !slices.ContainsFunc(records, matches) {
			t.Errorf("no flow entry of %s in %+v", what, records)
		}
	}
}

// lookUpName resolves a name on a new stream.
func lookUpName(t *testing.T, s attachmenttest.Socket, name string) dnsmessage.Message {
	t.Helper()
	query := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	packed, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(hosttest.Deadline())
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...)); err != nil {
		t.Fatal(err)
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, reply); err != nil {
		t.Fatal(err)
	}
	var m dnsmessage.Message
	if err := m.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	return m
}

// A lookup over a stream returns a synthetic address and leaves a flow entry.
func TestProxyResolvesNames(t *testing.T) {
	c, dir, s := attachProxy(t, Options{})
	m := lookUpName(t, s, "api.test.")
	if len(m.Answers) != 1 {
		t.Fatalf("the answer to api.test is %+v, want one address", m)
	}
	if a, ok := m.Answers[0].Body.(*dnsmessage.AResource); !ok || a.A[0] != 198 || a.A[1] != 18 {
		t.Errorf("the address of api.test is %+v, want a synthetic one", m.Answers)
	}
	if m := lookUpName(t, s, "other.test."); len(m.Answers) != 0 || m.RCode != dnsmessage.RCodeNameError && m.RCode != dnsmessage.RCodeRefused {
		t.Errorf("the answer to other.test is %+v, want a denial", m)
	}
	records := recordsAfterDetach(t, c, dir)
	for host, effect := range map[string]egress.Effect{"api.test": egress.Allow, "other.test": egress.Deny} {
		if !slices.ContainsFunc(records, func(r egress.Record) bool {
			return r.Kind == egress.KindDNS && r.Host == host && r.Effect == effect
		}) {
			t.Errorf("no flow entry of %s in %+v", host, records)
		}
	}
}

// relay returns the URL of a TCP port that leads to the socket, because curl does not support an
// HTTP proxy on a Unix socket.
func relay(t *testing.T, s attachmenttest.Socket) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.(interface{ CloseWrite() error }).CloseWrite()
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := s.Dial(t.Context())
			if err != nil {
				in.Close()
				continue
			}
			go pass(out, in)
			go pass(in, out)
		}
	}()
	return "http://" + l.Addr().String()
}

func TestCurlConnectsThroughProxy(t *testing.T) {
	hosttest.Need(t, hosttest.Program("curl"))
	// The level requires an approval for each tunnel.
	c, dir, s := attachProxy(t, Options{Asker: granter{asked: make(chan egress.ApprovalRequest, 8)}})
	proxy := relay(t, s)
	for url, want := range map[string]string{
		"http://api.test/hello": "/hello 200 200", "http://raw.test:7000/raw": "/raw 200 200",
		"http://other.test/": " 403 000", "http://api.test:81/": " 403 000",
	} {
		// -p makes curl use CONNECT for plain HTTP too.
		out, _ := exec.CommandContext(t.Context(), "curl", "-s", "-m", "60", "--noproxy", "", "-p", "-x", proxy, "-w", " %{http_connect} %{http_code}", url).Output()
		if string(out) != want {
			t.Errorf("curl %s: got %q, want %q", url, out, want)
		}
	}
	records := recordsAfterDetach(t, c, dir)
	for host, kind := range map[string]egress.Kind{"api.test": egress.KindHTTP, "raw.test": egress.KindTunnel, "other.test": egress.KindConnect} {
		if !slices.ContainsFunc(records, func(r egress.Record) bool { return r.Host == host && r.Kind == kind }) {
			t.Errorf("no flow entry of %s %s in %+v", kind, host, records)
		}
	}
}

// After Detach, open connections end and the socket accepts no further ones.
func TestDetachEndsProxy(t *testing.T) {
	c, _, s := attachProxy(t, Options{})
	conn, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(hosttest.Deadline())
	fmt.Fprintf(conn, "GET http://api.test/hello HTTP/1.1\r\nHost: api.test\r\n\r\n")
	head := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 200" {
		t.Fatalf("control: the response before Detach is %q %v", head, err)
	}
	if err := c.Detach(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the connection did not end with Detach: %v", err)
	}
	if again, err := s.Dial(t.Context()); err == nil {
		again.Close()
		t.Error("the socket still accepts connections")
	}
}

package enginetest

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var linkRules = []rule{
	{"link/reaches-its-peer-and-nothing-else", linkReachesItsPeer},
	{"link/names-are-resolved-by-the-peer", func(t testing.TB, c *Config) {
		b, p := c.startLinked(t, c.Open(t, t.TempDir()))
		for _, server := range []string{"10.199.0.1", "8.8.8.8"} {
			b.want(t, python(`s = socket.socket(2, 2); s.settimeout(10); s.connect(("`+server+`", 53)); s.send(b"query"); print(s.recv(512).decode())`), "answer")
		}
		if n := len(p.seen("query")); n != 2 {
			t.Errorf("the peer got %d queries, want 2", n)
		}
	}},
	{"link/without-one-the-network-is-unreachable", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		with, p := c.startLinked(t, e)
		with.want(t, python(dialing("198.18.0.7", 80)), "connected")
		without := c.start(t, e)
		for _, to := range []string{"198.18.0.7", "10.199.0.1", "10.199.0.2", "1.1.1.1"} {
			without.want(t, python(dialing(to, 80)), "ENETUNREACH")
		}
		if n := len(p.seen("tcp 198.18.0.7:80")); n != 1 {
			t.Errorf("the peer saw %d connections, want only that of its own sandbox", n)
		}
	}},
	{"link/raw-packets-are-refused", func(t testing.TB, c *Config) {
		// boundary/probes-are-refused has the control.
		b, _ := c.startLinked(t, c.Open(t, t.TempDir()))
		for _, as := range []persona{asUser, asRoot, asOwner} {
			list := b.probe(t, c, as, makeCalls, "raw-socket", "packet-socket")
			if len(list) != 2 || !probes["raw-socket"].refused(list[0]) || !probes["packet-socket"].refused(list[1]) {
				t.Errorf("raw packets as %s: got %+v, want two refusals", as, list)
			}
		}
	}},
	{"link/there-is-no-ipv6", func(t testing.TB, c *Config) {
		b, p := c.startLinked(t, c.Open(t, t.TempDir()))
		for _, to := range []string{"2606:4700::1111", "fd00:ec2::254", "ff02::1%eth0", "fe80::1%eth0", "::ffff:169.254.169.254"} {
			r := b.sh(t, python(dialing(to, 80)))
			if got := strings.TrimSpace(r.stdout); got == "connected" {
				t.Errorf("a connection to %s: %+v", to, r)
			}
		}
		b.want(t, python(dialing("198.18.0.7", 80)), "connected")
		for _, seen := range p.seen("") {
			if strings.Contains(seen, "ipv6") {
				t.Errorf("the sandbox sent %s", seen)
			}
		}
	}},
	{"link/its-end-is-seen-in-the-sandbox", func(t testing.TB, c *Config) {
		b, p := c.startLinked(t, c.Open(t, t.TempDir()))
		b.want(t, python(dialing("198.18.0.7", 80)), "connected")
		done := make(chan result, 1)
		go func() {
			done <- b.sh(t, python(`s = socket.create_connection(("198.18.0.7", 81)); s.recv(5, socket.MSG_WAITALL); s.send(b"!")
try: print("read", len(s.recv(1)))
except OSError as e: print(errno.errorcode[e.errno])`))
		}()
		<-p.held
		p.link.Close()
		if r := <-done; strings.TrimSpace(r.stdout) != "ECONNRESET" && strings.TrimSpace(r.stdout) != "read 0" {
			t.Errorf("an open connection after the attachment's end: %+v", r)
		}
		r := b.sh(t, python(dialing("198.18.0.7", 80)))
		if strings.TrimSpace(r.stdout) == "connected" {
			t.Errorf("a new connection after the attachment's end: %+v", r)
		}
		t.Logf("a new connection after the attachment's end: %s", strings.TrimSpace(r.stdout))
		b.want(t, "echo alive", "alive")
	}},
	{"link/ends-with-the-sandbox", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, p := c.startLinked(t, e)
		select {
		case <-p.link.Done():
			t.Fatal("control: the attachment of a running sandbox has ended")
		default:
		}
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		<-p.link.Done()
	}},
	// P8 of docs/reference/promises.md
	{"link/cycles-leave-nothing", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		createAndRemove := func() {
			b, p := c.startLinked(t, e, func(s *engine.Spec) { s.Hide, s.ReadOnly = []string{"/etc/hosts"}, []string{"/etc/passwd"} })
			b.want(t, python(dialing("198.18.0.7", 80)), "connected")
			b.client.CloseIdleConnections()
			if err := e.Remove(t.Context(), b.id); err != nil {
				t.Fatal(err)
			}
			<-p.link.Done()
		}
		createAndRemove()
		before := c.count(t, dir)
		cycles := min(c.Cycles, 50)
		for range cycles {
			createAndRemove()
		}
		var after map[string]int
		hosttest.Eventually(t, "nothing of the sandboxes is left", func() bool {
			after = c.count(t, dir)
			return len(hosttest.Grown(before, after)) == 0
		})
		if left := hosttest.Grown(before, after); len(left) > 0 {
			t.Errorf("after %d sandboxes: %v", cycles, left)
		}
	}},
}

// peer is the other end of a sandbox's network attachment. It accepts connections to 198.18.0.7 and
// sends hello. It then closes connections to port 80, keeps those to port 81 open once it has
// received a byte, and records what it receives on port 82. It refuses ports from 9000 on, and all
// other traffic.
type peer struct {
	link attachment.Attachment
	held chan struct{} // receives a value for each connection that is kept open

	mu  sync.Mutex
	log []string
}

// note adds an event to the peer's log.
func (p *peer) note(event string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, event)
}

// seen returns the peer's events that begin with prefix. Two equal connections in a row are
// returned once, because a sandbox connects again if a slow peer has not answered yet.
func (p *peer) seen(prefix string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := slices.DeleteFunc(slices.Clone(p.log), func(s string) bool { return !strings.HasPrefix(s, prefix) })
	return slices.CompactFunc(log, func(a, b string) bool { return a == b && strings.HasPrefix(a, "tcp ") })
}

// TCP handles a connection of the sandbox.
func (p *peer) TCP(f *attachment.Flow) {
	p.note("tcp " + f.Destination().String())
	if f.Destination().Addr() != netip.MustParseAddr("198.18.0.7") || f.Destination().Port() >= 9000 {
		return
	}
	c, err := f.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = io.WriteString(c, "hello")
	switch f.Destination().Port() {
	case 81:
		// The sandbox is certain to be connected once it has sent a byte.
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return
		}
		p.held <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	case 82:
		if output, _ := io.ReadAll(c); len(output) > 0 {
			p.note("received " + string(output))
		}
	}
}

// Names answers a name query of the sandbox.
func (p *peer) Names(query []byte, _ int) []byte {
	p.note(string(query))
	return []byte("answer")
}

// Dropped records a packet that the attachment dropped.
func (p *peer) Dropped(proto string, dst netip.AddrPort) { p.note(proto + " " + dst.String()) }

// newPeer creates an attachment with a peer, which ends with the test, and returns the sandbox's
// end. The caller closes that end.
func newPeer(t testing.TB) (*os.File, *peer) {
	t.Helper()
	end, peerEnd, err := attachment.Pair(attachment.Packets)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{held: make(chan struct{}, 8)}
	if p.link, err = attachment.Open(attachment.Packets, peerEnd, p, attachment.Options{}); err != nil {
		end.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { p.link.Close() })
	return end, p
}

// startLinked starts a sandbox with a network attachment.
func (c *Config) startLinked(t testing.TB, e engine.Engine, change ...func(*engine.Spec)) (*testSandbox, *peer) {
	t.Helper()
	end, p := newPeer(t)
	defer end.Close()
	return c.start(t, e, append(change, linkedBy(end))...), p
}

// python returns a shell command that runs a Python program.
func python(program string) string {
	return "python3 -c '\nimport socket, errno, os\n" + program + "'"
}

// dialing returns a Python program that prints the result of a connection attempt.
func dialing(host string, port int) string {
	return fmt.Sprintf(`
try:
    s = socket.create_connection(("%s", %d), timeout=5)
    print("connected" if s.recv(5) else "EOF")
except TimeoutError: print("timeout")
except OSError as e: print(errno.errorcode.get(e.errno, str(e)))`, host, port)
}

// linkReachesItsPeer checks that packets of a sandbox reach its peer and no other destination.
func linkReachesItsPeer(t testing.TB, c *Config) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	control, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("control: %v", err)
	}
	control.Close()
	b, p := c.startLinked(t, c.Open(t, t.TempDir()))
	b.want(t, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | tr '\\n' ' '", "eth0 lo")
	b.want(t, python(dialing("198.18.0.7", 80)), "connected")
	port := l.Addr().(*net.TCPAddr).Port
	for _, to := range []string{"127.0.0.1", "10.199.0.1", "1.1.1.1", "169.254.169.254"} {
		b.want(t, python(dialing(to, port)), "ECONNREFUSED")
	}
	b.want(t, python(`s = socket.socket(2, 2); s.settimeout(10); s.connect(("8.8.8.8", 123)); s.send(b"x")
try: print(s.recv(1))
except OSError as e: print(errno.errorcode[e.errno])`), "ECONNREFUSED")
	want := []string{
		"tcp 198.18.0.7:80", fmt.Sprintf("tcp 10.199.0.1:%d", port), fmt.Sprintf("tcp 1.1.1.1:%d", port),
		fmt.Sprintf("tcp 169.254.169.254:%d", port), "udp 8.8.8.8:123",
	}
	if got := p.seen(""); !slices.Equal(got, want) {
		t.Errorf("the peer saw %q, want %q", got, want)
	}
	// The sandbox cannot reach the addresses of the host either; only the peer receives its
	// packets.
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.LookupHost(host)
	if err != nil {
		addresses = nil
	}
	for _, a := range addresses {
		if strings.Contains(a, ".") && !strings.HasPrefix(a, "127.") {
			b.want(t, python(dialing(a, port)), "ECONNREFUSED")
		}
	}
}

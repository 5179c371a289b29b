package enginetest

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// openConnection is a Python program with a connection that is open when a state is saved. It
// creates the file connected. Once the file send exists, it sends the host name, and then writes
// the outcome to the file outcome.
const openConnection = `s = socket.create_connection(("198.18.0.7", 82)); s.recv(5, socket.MSG_WAITALL)
import time
open("connected", "w").close()
while not os.path.exists("send"): time.sleep(0.02)
try:
    s.sendall(os.uname().nodename.encode()); s.shutdown(1); s.settimeout(20)
    outcome = "read %d" % len(s.recv(1))
except OSError as e: outcome = errno.errorcode.get(e.errno, str(e))
open("outcome.new", "w").write(outcome)
os.rename("outcome.new", "outcome")`

// connectEvent returns the peer's event for a connection to a port without a listener. Each sandbox
// uses a different port.
func connectEvent(port int) string { return fmt.Sprintf("tcp 198.18.0.7:%d", port) }

var copyLinkRules = []rule{
	// P26 of docs/reference/promises.md
	{"copies/have-their-own-links", func(t testing.TB, c *Config) { copiesHaveOwnLinks(t, c, func(*Config, engine.Engine, int) {}) }},
	{"copies/links-are-not-restored-with-the-memory", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, p := c.startLinked(t, e)
		dir := save(t, b)
		without := c.copyOf(t, e, dir)
		without.want(t, python(dialing("198.18.0.7", 9001)), "ENETUNREACH")
		b.want(t, python(dialing("198.18.0.7", 9000)), "ECONNREFUSED")
		if !slices.Equal(p.seen(""), []string{connectEvent(9000)}) {
			t.Errorf("the source's peer saw %q", p.seen(""))
		}
		// A sandbox without a network attachment can be restored with one.
		end, copyPeer := newPeer(t)
		defer end.Close()
		c.copyOf(t, e, save(t, without), linkedBy(end)).want(t, python(dialing("198.18.0.7", 80)), "connected")
		if !slices.Equal(copyPeer.seen(""), []string{connectEvent(80)}) {
			t.Errorf("the peer of the copy saw %q", copyPeer.seen(""))
		}
	}},
	{"copies/a-link-is-replaced-with-its-sandbox", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, p := c.startLinked(t, e)
		dir := save(t, b)
		b.want(t, python(dialing("198.18.0.7", 9000)), "ECONNREFUSED")
		end, replacement := newPeer(t)
		spec := c.spec(b.id)
		spec.Egress, spec.Boot.Config = engine.Packets(end), renewed(b.id, "box", guest.RolledBack)
		err := saver(e).Replace(t.Context(), spec, dir)
		end.Close()
		if err != nil {
			t.Fatal(err)
		}
		<-p.link.Done() // closed when its other end is closed
		attach(t, e, b.id).want(t, python(dialing("198.18.0.7", 9001)), "ECONNREFUSED")
		if old, current := p.seen(""), replacement.seen(""); !slices.Equal(old, []string{connectEvent(9000)}) || !slices.Equal(current, []string{connectEvent(9001)}) {
			t.Errorf("the old peer saw %q, the new one %q", old, current)
		}
	}},
}

// linkedBy connects a sandbox to a peer by this end.
func linkedBy(end *os.File) func(*engine.Spec) {
	return func(s *engine.Spec) { s.Egress = engine.Packets(end) }
}

// copiesHaveOwnLinks checks that each copy of a sandbox has its own network attachment. It creates
// two copies, and calls prepare before each.
func copiesHaveOwnLinks(t testing.TB, c *Config, prepare func(c *Config, e engine.Engine, n int)) {
	e := c.Open(t, t.TempDir())
	b, p := c.startLinked(t, e)
	b.sh(t, "cat > connect.py <<'X'\nimport socket, errno, os\n"+openConnection+"\nX\nsetsid python3 connect.py >/dev/null 2>&1 &\n")
	hosttest.Eventually(t, "the program is connected", func() bool { return b.sh(t, "test -e connected").code == 0 })
	dir := save(t, b)

	sandboxes, peers := []*testSandbox{b}, []*peer{p}
	for n := range 2 {
		prepare(c, e, n)
		end, p := newPeer(t)
		sandboxes = append(sandboxes, c.copyOf(t, e, dir, linkedBy(end)))
		peers = append(peers, p)
		end.Close()
	}
	for i, b := range sandboxes {
		b.want(t, python(dialing("198.18.0.7", 80)), "connected")
		b.want(t, python(dialing("198.18.0.7", 9000+i)), "ECONNREFUSED")
	}
	for i, p := range peers {
		for j := range sandboxes {
			if n := len(p.seen(connectEvent(9000 + j))); (n == 1) != (i == j) || n > 1 {
				t.Errorf("the peer of sandbox %d saw %d connections of sandbox %d", i, n, j)
			}
		}
	}
	// Only the source can use the connection that was open.
	for i, b := range slices.Backward(sandboxes) {
		b.sh(t, ": > send")
		hosttest.Eventually(t, "the program has sent its message", func() bool { return b.sh(t, "test -e outcome").code == 0 })
		if outcome := b.sh(t, "cat outcome").stdout; (outcome == "read 0") != (i == 0) {
			t.Errorf("the open connection of sandbox %d: %s", i, outcome)
		}
	}
	hosttest.Eventually(t, "the source's message arrives", func() bool { return len(p.seen("received box")) == 1 })
	for i, p := range peers {
		if n := len(p.seen("received ")); (n == 1) != (i == 0) || n > 1 {
			t.Errorf("the peer of sandbox %d received %q", i, p.seen("received "))
		}
	}
	// The end of one attachment does not affect other sandboxes.
	peers[1].link.Close()
	for i, b := range sandboxes {
		if r := b.sh(t, python(dialing("198.18.0.7", 80))); (r.stdout == "connected\n") == (i == 1) {
			t.Errorf("sandbox %d without the attachment of sandbox 1: %+v", i, r)
		}
	}
}

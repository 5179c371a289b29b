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

// openConnection is a program with a connection that is open when a state is written. Once a file
// named say exists, it sends the host's name.
const openConnection = `s = socket.create_connection(("198.18.0.7", 82)); s.recv(5, socket.MSG_WAITALL)
import time
open("stands", "w").close()
while not os.path.exists("say"): time.sleep(0.02)
try:
    s.sendall(os.uname().nodename.encode()); s.shutdown(1); s.settimeout(20)
    how = "read %d" % len(s.recv(1))
except OSError as e: how = errno.errorcode.get(e.errno, str(e))
open("how", "w").write(how)
os.rename("how", "said")`

// dialled returns the peer's note about a connection to a port without a listener. Each sandbox
// uses a different port.
func dialled(port int) string { return fmt.Sprintf("tcp 198.18.0.7:%d", port) }

var copyLinkRules = []rule{
	// P26
	{"copies/have-their-own-links", func(t testing.TB, c *Config) { linksAreTheirOwn(t, c, func(*Config, engine.Engine, int) {}) }},
	{"copies/links-are-not-restored-with-the-memory", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, p := c.startLinked(t, e)
		dir := save(t, b)
		without := c.copyOf(t, e, dir)
		without.want(t, python(dialing("198.18.0.7", 9001)), "ENETUNREACH")
		b.want(t, python(dialing("198.18.0.7", 9000)), "ECONNREFUSED")
		if !slices.Equal(p.seen(""), []string{dialled(9000)}) {
			t.Errorf("the source's peer saw %q", p.seen(""))
		}
		// A sandbox without a network attachment can be restored with one.
		end, theirs := newPeer(t)
		defer end.Close()
		c.copyOf(t, e, save(t, without), linkedBy(end)).want(t, python(dialing("198.18.0.7", 80)), "connected")
		if !slices.Equal(theirs.seen(""), []string{dialled(80)}) {
			t.Errorf("its peer saw %q", theirs.seen(""))
		}
	}},
	{"copies/a-link-is-replaced-with-its-sandbox", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b, p := c.startLinked(t, e)
		dir := save(t, b)
		b.want(t, python(dialing("198.18.0.7", 9000)), "ECONNREFUSED")
		end, theirs := newPeer(t)
		spec := c.spec(b.id)
		spec.Egress, spec.Boot.Config = engine.Packets(end), renewed(b.id, "box", guest.RolledBack)
		err := saver(e).Replace(t.Context(), spec, dir)
		end.Close()
		if err != nil {
			t.Fatal(err)
		}
		<-p.link.Done() // closed when its other end is closed
		attach(t, e, b.id).want(t, python(dialing("198.18.0.7", 9001)), "ECONNREFUSED")
		if was, is := p.seen(""), theirs.seen(""); !slices.Equal(was, []string{dialled(9000)}) || !slices.Equal(is, []string{dialled(9001)}) {
			t.Errorf("the old peer saw %q, the new one %q", was, is)
		}
	}},
}

func linkedBy(end *os.File) func(*engine.Spec) {
	return func(s *engine.Spec) { s.Egress = engine.Packets(end) }
}

// linksAreTheirOwn creates two copies of a sandbox with a network attachment, after it has called
// prepare.
func linksAreTheirOwn(t testing.TB, c *Config, prepare func(c *Config, e engine.Engine, n int)) {
	e := c.Open(t, t.TempDir())
	b, p := c.startLinked(t, e)
	b.sh(t, "cat > stand.py <<'X'\nimport socket, errno, os\n"+openConnection+"\nX\nsetsid python3 stand.py >/dev/null 2>&1 &\n")
	hosttest.Eventually(t, "a connection stands", func() bool { return b.sh(t, "test -e stands").code == 0 })
	dir := save(t, b)

	boxes, peers := []*testSandbox{b}, []*peer{p}
	for n := range 2 {
		prepare(c, e, n)
		end, p := newPeer(t)
		boxes = append(boxes, c.copyOf(t, e, dir, linkedBy(end)))
		peers = append(peers, p)
		end.Close()
	}
	for i, b := range boxes {
		b.want(t, python(dialing("198.18.0.7", 80)), "connected")
		b.want(t, python(dialing("198.18.0.7", 9000+i)), "ECONNREFUSED")
	}
	for i, p := range peers {
		for j := range boxes {
			if n := len(p.seen(dialled(9000 + j))); (n == 1) != (i == j) || n > 1 {
				t.Errorf("the peer of sandbox %d saw %d connections of sandbox %d", i, n, j)
			}
		}
	}
	// Only the source can use the connection that was open.
	for i, b := range slices.Backward(boxes) {
		b.sh(t, ": > say")
		hosttest.Eventually(t, "the program has sent its message", func() bool { return b.sh(t, "test -e said").code == 0 })
		if how := b.sh(t, "cat said").stdout; (how == "read 0") != (i == 0) {
			t.Errorf("the connection of sandbox %d: %s", i, how)
		}
	}
	hosttest.Eventually(t, "the source's message arrives", func() bool { return len(p.seen("said box")) == 1 })
	for i, p := range peers {
		if n := len(p.seen("said ")); (n == 1) != (i == 0) || n > 1 {
			t.Errorf("the peer of sandbox %d heard %q", i, p.seen("said "))
		}
	}
	// The end of one attachment does not affect other sandboxes.
	peers[1].link.Close()
	for i, b := range boxes {
		if r := b.sh(t, python(dialing("198.18.0.7", 80))); (r.stdout == "connected\n") == (i == 1) {
			t.Errorf("sandbox %d without the attachment of sandbox 1: %+v", i, r)
		}
	}
}

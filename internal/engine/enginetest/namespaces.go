package enginetest

import (
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// namespaceRules are about programs that confine themselves (F11), as agents and browsers do with
// their own sandboxes.
var namespaceRules = []rule{
	{"namespaces/programs-can-create-them", confinedByNamespaces},
	{"namespaces/bubblewrap", bubblewrap},
}

// newAddress adds 127.0.0.1 to the loopback interface as bubblewrap does, with a flag that makes it
// fail if the address exists.
const newAddress = `
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
def ask(address, index):
    body = struct.pack("=BBBBI", socket.AF_INET, 8, 0x80, 254, index) + struct.pack("=HH4sHH4s", 8, 2, address, 8, 1, address)
    s.send(struct.pack("=IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)
    print(struct.unpack_from("=i", s.recv(4096), 16)[0], end=" ")
ask(bytes([127, 0, 0, 1]), 1)
ask(bytes([127, 0, 0, 1]), 9)
`

func confinedByNamespaces(t testing.TB, c *Config) {
	ws := t.TempDir()
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
	b.want(t, "unshare --user --map-root-user id -u && unshare -Um --map-current-user id -u", "0\n1000")
	b.want(t, "unshare -Urmpiunf --mount-proc sh -c 'echo $$; hostname mine && hostname; mount -t tmpfs none /mnt 2>/dev/null || mount -t tmpfs none /tmp; ls -A /tmp'; hostname",
		"1\nmine\nbox")
	// Root of a separate namespace is not root of the sandbox.
	for _, attempt := range []string{
		"touch /etc/new", "chown 12345 /workspace", "mount -o remount,rw /sys", "hostname other", "cat /etc/shadow", "mknod /tmp/sda b 8 0",
	} {
		if r := b.sh(t, "unshare -Ur "+attempt); r.code == 0 {
			t.Errorf("%s: %+v", attempt, r)
		}
	}
	b.want(t, "unshare -Urn python3 -c '"+newAddress+"'", "0 -22")
	// Such a root cannot change the network of the sandbox.
	b.want(t, "python3 -c '"+newAddress+"'", "-1 -1")
}

func bubblewrap(t testing.TB, c *Config) {
	hosttest.Need(t, hosttest.Program("bwrap"))
	ws := t.TempDir()
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
	b.want(t, "bwrap --ro-bind / / --unshare-all true && echo done", "done")
	// This is how agents call it: the workspace is writable, everything else is not, and there is
	// no network.
	const agents = "bwrap --new-session --die-with-parent --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind /workspace /workspace " +
		"--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-net --cap-drop ALL --chdir /workspace "
	b.want(t, agents+"sh -c 'echo x > made && cat made && id -u && ls -A /tmp'", "x\n1000")
	for _, attempt := range []string{"touch /home/user/new", "touch /etc/new", "mount -t tmpfs none /workspace", "umount /tmp", "cat /proc/1/root/etc/shadow"} {
		if r := b.sh(t, agents+attempt); r.code == 0 {
			t.Errorf("%s: %+v", attempt, r)
		}
	}
	// The control: some of it works without bubblewrap.
	b.want(t, "touch /home/user/new && echo done", "done")
}

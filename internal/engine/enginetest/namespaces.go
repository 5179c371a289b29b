package enginetest

import (
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// namespaceRules check that programs can confine themselves with namespaces, as agents and browsers
// do with their own sandboxes (F11 in docs/internals/regressions.md).
var namespaceRules = []rule{
	{"namespaces/programs-can-create-them", programsCreateNamespaces},
	{"namespaces/bubblewrap", bubblewrap},
}

// addLoopbackAddress is a Python program that adds 127.0.0.1 to the loopback interface as
// bubblewrap does, with a flag that makes the request fail if the address exists. It prints the
// error numbers.
const addLoopbackAddress = `
import socket, struct
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
def add(address, index):
    body = struct.pack("=BBBBI", socket.AF_INET, 8, 0x80, 254, index) + struct.pack("=HH4sHH4s", 8, 2, address, 8, 1, address)
    s.send(struct.pack("=IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)
    print(struct.unpack_from("=i", s.recv(4096), 16)[0], end=" ")
add(bytes([127, 0, 0, 1]), 1)
add(bytes([127, 0, 0, 1]), 9)
`

// programsCreateNamespaces checks that a program can create namespaces, and has no more rights in
// the sandbox by them.
func programsCreateNamespaces(t testing.TB, c *Config) {
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
			t.Errorf("%s succeeds: %+v", attempt, r)
		}
	}
	b.want(t, "unshare -Urn python3 -c '"+addLoopbackAddress+"'", "0 -22")
	// A program outside a new namespace cannot change the network of the sandbox.
	b.want(t, "python3 -c '"+addLoopbackAddress+"'", "-1 -1")
}

// bubblewrap checks that bubblewrap confines a program in the sandbox.
func bubblewrap(t testing.TB, c *Config) {
	hosttest.Need(t, hosttest.Program("bwrap"))
	ws := t.TempDir()
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
	b.want(t, "bwrap --ro-bind / / --unshare-all true && echo done", "done")
	// Agents call bubblewrap in this way: only the workspace is writable, and there is no network.
	const confined = "bwrap --new-session --die-with-parent --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind /workspace /workspace " +
		"--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-net --cap-drop ALL --chdir /workspace "
	b.want(t, confined+"sh -c 'echo x > made && cat made && id -u && ls -A /tmp'", "x\n1000")
	for _, attempt := range []string{"touch /home/user/new", "touch /etc/new", "mount -t tmpfs none /workspace", "umount /tmp", "cat /proc/1/root/etc/shadow"} {
		if r := b.sh(t, confined+attempt); r.code == 0 {
			t.Errorf("%s succeeds: %+v", attempt, r)
		}
	}
	// The control: without bubblewrap the user can create the file.
	b.want(t, "touch /home/user/new && echo done", "done")
}

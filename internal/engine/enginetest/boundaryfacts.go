package enginetest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// factFiles lists files that identify a machine. A sandbox has files with some of these names, but
// with different content.
var factFiles = []string{
	"/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname", "/etc/hostname",
	"/proc/version", "/proc/cmdline", "/proc/sys/kernel/osrelease", "/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow",
	"/etc/hosts", "/etc/resolv.conf", "/etc/fstab", "/proc/modules", "/proc/partitions", "/proc/diskstats", "/proc/mounts",
	"/proc/self/mountinfo", "/proc/keys", "/proc/net/unix",
	"/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/product_uuid", "/sys/class/dmi/id/board_serial", "/sys/class/dmi/id/chassis_serial",
	"/sys/devices/virtual/dmi/id/product_uuid", "/proc/device-tree/serial-number", "/sys/hypervisor/uuid",
}

// alwaysPresent lists the factFiles that every host has.
var alwaysPresent = []string{"/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname", "/proc/version", "/proc/cmdline", "/etc/passwd", "/proc/mounts"}

// kernelFiles lists files that identify the kernel, like uname. Sandboxes that share the host's
// kernel show them.
var kernelFiles = []string{"/proc/version", "/proc/sys/kernel/osrelease"}

// hostIdentityIsNotShown checks that no file in a sandbox identifies the host.
func hostIdentityIsNotShown(t testing.TB, c *Config) {
	b := c.start(t, c.Open(t, t.TempDir()))
	inside := b.shAs(t, "root", "for f in "+strings.Join(factFiles, " ")+`; do echo "== $f"; cat "$f" 2>/dev/null; echo; done; echo "== dmesg"; dmesg`).stdout
	facts := map[string]string{}
	for part := range strings.SplitSeq("\n"+inside, "\n== ") {
		name, text, _ := strings.Cut(part, "\n")
		facts[name] = strings.TrimSpace(text)
	}
	if facts["/proc/sys/kernel/random/boot_id"] == "" || facts["/etc/passwd"] == "" {
		t.Fatalf("control: the sandbox's own files are missing: %q", inside)
	}
	for _, path := range factFiles {
		data, err := os.ReadFile(path)
		text := strings.TrimSpace(string(data))
		if text == "" {
			if slices.Contains(alwaysPresent, path) {
				t.Errorf("control: %s of the host is empty: %v", path, err)
			}
			continue
		}
		if !ownKernel(b.e) && slices.Contains(kernelFiles, path) {
			continue
		}
		if facts[path] == text {
			t.Errorf("%s has the content of the host's file", path) // the content may be a secret, so it is not printed
		}
	}
	// A line of these files describes one account or one disk of the host.
	for _, path := range []string{"/etc/shadow", "/etc/gshadow", "/proc/partitions"} {
		data, _ := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); len(line) > 12 && slices.Contains(strings.Split(facts[path], "\n"), line) {
				t.Errorf("%s contains a line of the host's file", path)
			}
		}
	}
	wantNoMessages(t, facts["dmesg"])
	wantNoAddresses(t, b)
}

// wantNoMessages checks that the kernel messages in the sandbox are not those of the host. It
// compares them without their times.
func wantNoMessages(t testing.TB, inside string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if os.Geteuid() == 0 && (err != nil || n == 0) {
		t.Errorf("control: the host's kernel has no messages for root: %v", err)
	}
	message := func(line string) string { _, text, _ := strings.Cut(line, "] "); return strings.TrimSpace(text) }
	host := map[string]bool{}
	for line := range strings.Lines(string(buf[:max(n, 0)])) {
		host[message(line)] = true
	}
	for line := range strings.Lines(inside) {
		if text := message(line); len(text) > 8 && host[text] {
			t.Errorf("a message of the host's kernel: %q", text)
		}
	}
}

// wantNoAddresses checks that the host's hardware addresses are not visible.
func wantNoAddresses(t testing.TB, b *testSandbox) {
	t.Helper()
	r := b.shAs(t, "root", `cat /sys/class/net/*/address /proc/net/dev 2>/dev/null; python3 -c '
import fcntl, socket, struct
s = socket.socket()
for _, name in socket.if_nameindex():
    print(name, fcntl.ioctl(s, 0x8927, struct.pack("256s", name.encode()))[18:24].hex(":"))'`)
	if !strings.Contains(r.stdout, "lo 00:00:00:00:00:00") {
		t.Errorf("control: the sandbox does not show its loopback: %+v", r)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		if address := i.HardwareAddr.String(); address != "" && address != "00:00:00:00:00:00" && strings.Contains(r.stdout, address) {
			t.Errorf("the sandbox shows the address of %s: %s", i.Name, address)
		}
	}
}

// hostSecretsAreAbsent checks that no information about processes in the sandbox contains the
// server's secrets or paths of the host.
func hostSecretsAreAbsent(t testing.TB, c *Config) {
	const canary = "canary-7d1f0b"
	t.Setenv("CRANNOG_TEST_SECRET", canary)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	secrets := []string{canary, accessToken, controlToken, state, self, filepath.Base(self)}
	if dir := c.Image.View().Dir; dir != "" {
		secrets = append(secrets, dir)
	}
	// The control: a child of this process shows the secrets in the same places.
	child := exec.CommandContext(t.Context(), "/bin/sh", "-c", `cat /proc/$$/environ /proc/$$/cmdline /proc/$PPID/maps; true`, accessToken, controlToken, state, c.Image.View().Dir)
	if out, err := child.CombinedOutput(); err != nil || slices.ContainsFunc(secrets, func(n string) bool { return !strings.Contains(string(out), n) }) {
		t.Errorf("control: a process of the host does not show the secrets: %v %q", err, out)
	}
	b := c.start(t, c.Open(t, state))
	for _, user := range []string{"user", "root"} {
		r := b.shAs(t, user, `for p in /proc/[0-9]* /proc/self; do
	cat $p/environ $p/cmdline $p/maps $p/smaps $p/mounts $p/mountinfo $p/cgroup $p/status $p/comm $p/limits 2>/dev/null
	ls -l $p/ $p/fd $p/ns $p/task 2>/dev/null
done | tr '\0' '\n'; cat /proc/cmdline /proc/keys /proc/net/unix /proc/mounts 2>/dev/null; env; find /sys /dev -name '*crannog*'`)
		for _, secret := range secrets {
			if i := strings.Index(r.stdout, secret); i >= 0 {
				t.Errorf("%q is readable as %s: %q", secret, user, r.stdout[max(0, i-100):min(len(r.stdout), i+200)])
			}
		}
		if !strings.Contains(r.stdout, c.Image.Guest) {
			t.Errorf("control: nothing is shown about the guest as %s: %.300q", user, r.stdout)
		}
	}
}

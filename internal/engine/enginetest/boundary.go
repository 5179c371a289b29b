package enginetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// uncontrolled are probes whose control cannot be shown on every host, with
// the reason.
var uncontrolled = map[string]string{
	"open-kmsg":          "a container often has no /dev/kmsg",
	"open-mem":           "a container often has no /dev/mem",
	"open-kcore":         "hidden by container runtimes",
	"write-core-pattern": "read-only in containers",
	"connect-link-local": "asks a network; boundary/host-loopback has the control",
	"alg-socket":         "needs a kernel module",
	"vsock":              "needs a kernel module",
	"io-uring":           "switched off by many hosts",
	"perf-event-open":    "switched off by many hosts",
	"userfaultfd":        "not in every kernel",
	"kexec-load":         "not in every kernel",
	"add-key":            "not in every kernel",
	"iopl":               "not in every kernel",
	"init-module":        "not in every kernel",
	"finit-module":       "not in every kernel",
	"delete-module":      "not in every kernel",
	"acct":               "not in every kernel",
	"join-init-mounts":   "joining needs a single-threaded process",
}

var boundaryRules = []rule{
	// P9
	{"boundary/probes-are-refused", probesAreRefused},
	// P3
	{"boundary/host-files-are-absent", hostFilesAreAbsent},
	{"boundary/host-secrets-are-absent", func(t *testing.T, c *Config) {
		const canary = "canary-7d1f0b"
		t.Setenv("CRANNOG_TEST_SECRET", canary)
		if data, _ := os.ReadFile("/proc/self/environ"); os.Getenv("CRANNOG_TEST_SECRET") != canary {
			t.Fatalf("control: %q", data)
		}
		b := c.start(t, c.Open(t, t.TempDir()))
		r := b.shAs(t, "root", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'; env")
		for _, secret := range []string{canary, accessToken, controlToken} {
			if strings.Contains(r.stdout, secret) {
				t.Errorf("%q is readable inside", secret)
			}
		}
	}},
	// P4
	{"boundary/workspace-is-copy-on-write", workspaceIsCopyOnWrite},
	{"boundary/workspace-link-leads-nowhere", func(t *testing.T, c *Config) {
		outside := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(outside, []byte("outside"), 0o644); err != nil {
			t.Fatal(err)
		}
		ws := t.TempDir()
		if err := os.Symlink(outside, filepath.Join(ws, "link")); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(ws, "link")); err != nil || string(data) != "outside" {
			t.Fatalf("control: %q %v", data, err)
		}
		b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
		if r := b.shAs(t, "root", "cat /workspace/link /workspace/../"+outside); r.code == 0 || strings.Contains(r.stdout, "outside") {
			t.Errorf("a link in the workspace leads out: %+v", r)
		}
	}},
	// P5
	{"boundary/host-loopback", func(t *testing.T, c *Config) {
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
		b := c.start(t, c.Open(t, t.TempDir()))
		port := l.Addr().(*net.TCPAddr).Port
		if r := b.sh(t, fmt.Sprintf("bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d'", port)); r.code == 0 {
			t.Error("a box reaches a listener on the host's loopback")
		}
	}},
	{"boundary/host-abstract-socket", func(t *testing.T, c *Config) {
		name := "@" + newID()
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		line := fmt.Sprintf(`import socket; s = socket.socket(socket.AF_UNIX); s.connect("\0%s")`, name[1:])
		if out, err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("control: %v %s", err, out)
		}
		b := c.start(t, c.Open(t, t.TempDir()))
		if r := b.sh(t, "python3 -c '"+line+"'"); r.code == 0 {
			t.Error("a box reaches an abstract socket of the host")
		}
	}},
	{"boundary/only-loopback", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo")
	}},
	{"boundary/host-processes-are-invisible", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		r := b.shAs(t, "root", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
		if strings.Contains(r.stdout, filepath.Base(os.Args[0])) {
			t.Errorf("the server's process is visible: %q", r.stdout)
		}
	}},
	{"boundary/boxes-do-not-see-each-other", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		one, two := c.start(t, e), c.start(t, e)
		one.want(t, "echo mark | tee /tmp/mark /var/tmp/mark /home/user/mark /workspace/mark /dev/shm/mark", "mark")
		two.want(t, "ls /tmp/mark /var/tmp/mark /home/user/mark /workspace/mark /dev/shm/mark 2>/dev/null || true", "")
	}},
	{"boundary/set-id-gains-nothing", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		if r := b.shAs(t, "root", "cp /usr/bin/id /tmp/id && chmod 4755 /tmp/id && test -u /tmp/id"); r.code != 0 {
			t.Fatalf("control: %+v", r)
		}
		b.want(t, "/tmp/id -u", "1000")
	}},
	{"boundary/kill-all-leaves-the-guest", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, _ = b.exec(ctx, "user", "/bin/sh", "-c", "kill -9 -1")
		_, _ = b.exec(ctx, "user", "/bin/sh", "-c", "kill -9 1")
		b.want(t, "echo alive", "alive")
	}},
}

func probesAreRefused(t *testing.T, c *Config) {
	control := exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{probeArg}, probeNames()...)...)
	control.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	sleeper := exec.CommandContext(t.Context(), "sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	control.Env = []string{fmt.Sprintf("PROBE_TRACEE=%d", sleeper.Process.Pid)}
	if os.Geteuid() == 0 {
		out, err := control.CombinedOutput()
		if err != nil {
			t.Fatalf("control: %v %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			name, got, _ := strings.Cut(strings.TrimSpace(line), " ")
			if !strings.HasPrefix(got, "permitted") && uncontrolled[name] == "" {
				t.Errorf("control of %s: %s on the host as root, so its refusal inside proves nothing", name, got)
			}
		}
	}
	b := c.start(t, c.Open(t, t.TempDir()))
	for _, user := range []string{"user", "root"} {
		r := b.shAs(t, user, c.Root.Guest+" "+probeArg+" "+strings.Join(probeNames(), " "))
		if r.code != 0 || strings.Count(r.stdout, "\n") != len(probes) {
			t.Fatalf("as %s: %+v", user, r)
		}
		for line := range strings.Lines(r.stdout) {
			if name, got, _ := strings.Cut(strings.TrimSpace(line), " "); got != "refused" {
				t.Errorf("%s as %s: %s", name, user, got)
			}
		}
	}
}

func hostFilesAreAbsent(t *testing.T, c *Config) {
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := c.start(t, c.Open(t, t.TempDir()))
	for _, path := range []string{
		canary, "/proc/1/root" + canary, "/proc/self/root/.." + canary,
		"/var/run/docker.sock", "/run/dbus", "/run/systemd", "/var/lib/dpkg", "/etc/ssl/private", "/etc/ssh",
		"/boot", "/mnt", "/media", "/opt", "/srv", "/old_root", "/etc/machine-id.host", "/sys/fs/cgroup/release_agent",
	} {
		if r := b.shAs(t, "root", "ls -d '"+path+"'"); r.code == 0 {
			t.Errorf("%s exists inside", path)
		}
	}
	hosts, err := os.ReadDir("/home")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		if h.Name() != "user" {
			if r := b.shAs(t, "root", "ls -d '/home/"+h.Name()+"'"); r.code == 0 {
				t.Errorf("home of %s exists inside", h.Name())
			}
		}
	}
	if r := b.shAs(t, "root", "ls -A /root"); r.stdout != "" {
		t.Errorf("/root holds %q", r.stdout)
	}
}

func workspaceIsCopyOnWrite(t *testing.T, c *Config) {
	ws := t.TempDir()
	for name, text := range map[string]string{"keep": "host", "change": "host", "delete": "host"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace, s.GuestConfig = ws, c.grant(s.ID) })
	b.want(t, "cd /workspace && echo box > change && rm delete && echo box > new && chmod 777 keep && mv keep moved && cat moved change new",
		"hostbox\nbox")
	for name, text := range map[string]string{"keep": "host", "change": "host", "delete": "host"} {
		if data, err := os.ReadFile(filepath.Join(ws, name)); err != nil || string(data) != text {
			t.Errorf("%s on the host: %q %v", name, data, err)
		}
	}
	if entries, err := os.ReadDir(ws); err != nil || len(entries) != 3 {
		t.Errorf("the host's directory now holds %v %v", entries, err)
	}
}

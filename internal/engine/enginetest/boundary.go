package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var boundaryRules = []rule{
	// P9 of docs/reference/promises.md
	{"boundary/probes-are-refused", probesAreRefused},
	// P3 of docs/reference/promises.md
	{"boundary/host-files-are-absent", hostFilesAreAbsent},
	{"boundary/host-secrets-are-absent", hostSecretsAreAbsent},
	{"boundary/host-identity-is-not-shown", hostIdentityIsNotShown},
	{"boundary/host-state-does-not-change", hostStateDoesNotChange},
	// P4 of docs/reference/promises.md
	{"boundary/host-files-do-not-change", hostFilesDoNotChange},
	{"boundary/workspace-is-copy-on-write", workspaceIsCopyOnWrite},
	{"boundary/workspace-links-do-not-reach-the-host", func(t testing.TB, c *Config) {
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
			t.Errorf("a link in the workspace leads to the host: %+v", r)
		}
	}},
	// P5 of docs/reference/promises.md
	{"boundary/host-loopback", func(t testing.TB, c *Config) {
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
			t.Error("a sandbox reaches a listener on the host's loopback")
		}
	}},
	{"boundary/host-abstract-socket", func(t testing.TB, c *Config) {
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
			t.Error("a sandbox reaches an abstract socket of the host")
		}
	}},
	{"boundary/only-loopback", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo")
	}},
	{"boundary/host-processes-are-invisible", func(t testing.TB, c *Config) {
		const listProcesses = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '"
		control, _ := exec.CommandContext(t.Context(), "/bin/sh", "-c", listProcesses).Output()
		if !strings.Contains(string(control), filepath.Base(os.Args[0])) {
			t.Errorf("control: the server's process is invisible on the host: %.300q", control)
		}
		b := c.start(t, c.Open(t, t.TempDir()))
		r := b.shAs(t, "root", listProcesses)
		if strings.Contains(r.stdout, filepath.Base(os.Args[0])) {
			t.Errorf("the server's process is visible: %q", r.stdout)
		}
	}},
	{"boundary/sandboxes-do-not-see-each-other", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		one, two := c.start(t, e), c.start(t, e)
		one.want(t, "echo mark | tee /tmp/mark /var/tmp/mark /home/user/mark /workspace/mark /dev/shm/mark", "mark")
		two.want(t, "ls /tmp/mark /var/tmp/mark /home/user/mark /workspace/mark /dev/shm/mark 2>/dev/null || true", "")
	}},
	{"boundary/set-id-gives-no-rights", func(t testing.TB, c *Config) {
		if os.Geteuid() == 0 {
			setIDControl(t)
		}
		b := c.start(t, c.Open(t, t.TempDir()))
		// Several directories are tried, because one that ignores set-id bits must not hide another
		// that honours them.
		for _, path := range []string{"/tmp/id", "/home/user/id", "/id", "/dev/shm/id", "/workspace/id"} {
			if r := b.shAs(t, "root", "cp /usr/bin/id "+path+" && chmod 4755 "+path+" && test -u "+path); r.code != 0 {
				t.Fatalf("control: %+v", r)
			}
			b.want(t, path+" -u", "1000")
		}
	}},
	{"boundary/kill-all-leaves-the-guest", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, _ = b.exec(ctx, "user", "/bin/sh", "-c", "kill -9 -1")
		_, _ = b.exec(ctx, "user", "/bin/sh", "-c", "kill -9 1")
		b.want(t, "echo alive", "alive")
	}},
}

// workspaceIsCopyOnWrite checks that changes to the workspace do not reach the host.
func workspaceIsCopyOnWrite(t testing.TB, c *Config) {
	ws := t.TempDir()
	for name, text := range map[string]string{"keep": "host", "change": "host", "delete": "host"} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
	b.want(t, "cd /workspace && echo box > change && rm delete && echo box > new && chmod 777 keep && mv keep moved && cat moved change new",
		"hostbox\nbox")
	for name, text := range map[string]string{"keep": "host", "change": "host", "delete": "host"} {
		if data, err := os.ReadFile(filepath.Join(ws, name)); err != nil || string(data) != text {
			t.Errorf("%s on the host contains %q, %v; want %q", name, data, err, text)
		}
	}
	if entries, err := os.ReadDir(ws); err != nil || len(entries) != 3 {
		t.Errorf("the host's directory contains %v, %v; want the three files", entries, err)
	}
}

// setIDControl is the control: on the host, an unprivileged user who runs a set-id copy of id
// becomes root.
func setIDControl(t testing.TB) {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "crannog-set-id-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program, err := os.ReadFile("/usr/bin/id")
	if err != nil {
		t.Fatal(err)
	}
	// The copy can only print user IDs, and exists only for this call.
	path := filepath.Join(dir, "id")
	if err := errors.Join(os.WriteFile(path, program, 0o755), os.Chmod(path, fs.ModeSetuid|0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-u")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: hosttest.Unprivileged, Gid: hosttest.Unprivileged}}
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "0" {
		t.Errorf("control: a set-id copy on the host: %q %v", out, err)
	}
}

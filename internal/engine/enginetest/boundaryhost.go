package enginetest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// hostDirs lists directories whose content on the host is not visible in a sandbox.
var hostDirs = []string{
	"/boot", "/dev/shm", "/etc", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp",
	"/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/tmp",
}

// wellKnown lists files that a host may have and a sandbox does not.
var wellKnown = []string{
	"/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/run/systemd/private",
	"/var/lib/dpkg/status", "/etc/ssl/private/*", "/etc/ssh/*", "/etc/fstab", "/etc/gshadow", "/etc/sudoers",
	"/root/.ssh/*", "/home/*/.ssh/*", "/root/.*_history", "/home/*/.*_history", "/root/.bashrc", "/root/.gitconfig",
}

// absentDirs lists directories that a host may have and a sandbox does not.
var absentDirs = []string{
	"/boot", "/etc/ssh", "/etc/ssl/private", "/lost+found", "/media", "/mnt", "/old_root", "/opt", "/run/dbus", "/run/systemd", "/srv",
	"/var/backups", "/var/lib/dpkg", "/var/spool", "/home/[!u]*",
}

// maxPaths bounds the number of paths that the probes try to reach.
const maxPaths = 40

// createCanaries creates files and sockets in the host's directories. Every user may open them, so
// that permissions alone cannot hide them.
func createCanaries(t testing.TB) (files []string) {
	t.Helper()
	for _, parent := range hostDirs {
		dir, err := os.MkdirTemp(parent, "crannog-canary-")
		if os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
			t.Logf("no canary in %s: %v", parent, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		names := []string{"secret"}
		if parent == "/home" {
			names = []string{".ssh/id_ed25519", ".bash_history"}
		}
		for _, name := range names {
			files = append(files, filepath.Join(dir, name))
			if err := os.MkdirAll(filepath.Dir(files[len(files)-1]), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(files[len(files)-1], []byte("canary"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if parent == "/run" || parent == "/tmp" {
			files = append(files, listen(t, filepath.Join(dir, "docker.sock")))
		}
	}
	return files
}

// listen listens on a socket to which every user may connect, and returns its path.
func listen(t testing.TB, path string) string {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// hostFilesAreAbsent checks that a sandbox cannot reach files of the host by any of the probes.
func hostFilesAreAbsent(t testing.TB, c *Config) {
	dir := t.TempDir()
	e := c.Open(t, dir)
	b := c.start(t, e)
	paths := createCanaries(t)
	if len(paths) == 0 {
		t.Fatal("the host has no place for a canary")
	}
	wantReached(t, paths)
	for _, pattern := range wellKnown {
		for _, path := range glob(pattern) {
			if readOrConnect(path) == nil && len(paths) < maxPaths {
				paths = append(paths, path)
			}
		}
	}
	paths = append(paths, sandboxFiles(t, c, e, dir)...)
	var dirs []string
	for _, pattern := range absentDirs {
		dirs = append(dirs, glob(pattern)...)
	}
	if r := b.shAs(t, "root", "ls -d '"+strings.Join(dirs, "' '")+"'; ls -A /root"); len(dirs) == 0 || r.stdout != "" {
		t.Errorf("the sandbox has some of the host's %q, or files in /root: %+v", dirs, r)
	}
	var reached []string
	for _, as := range personas(e) {
		sandboxFile := "/home/user/" + newID()
		if r := b.sh(t, "echo own > "+sandboxFile); r.code != 0 {
			t.Fatalf("the sandbox cannot create its file: %+v", r)
		}
		for _, a := range b.probe(t, c, as, append([]string{reachFiles, sandboxFile}, paths...)...) {
			switch {
			case a.succeeded() && a.Path == sandboxFile:
				reached = append(reached, a.Name)
			case a.Path != sandboxFile && a.succeeded():
				t.Errorf("%s of the host is reached by %s as %s", a.Path, a.Name, as)
			case a.Errno == 0:
				t.Errorf("reaching %s by %s as %s failed without an error number: %s", a.Path, a.Name, as, a.Text)
			}
		}
	}
	// Control: each probe reaches a file of the sandbox. Probes through the first process are
	// excluded, because that is the guest, which has no file open.
	for name := range probesByPath {
		refused := !ownKernel(e) && slices.Contains([]string{"bind", "chroot"}, name)
		if !slices.Contains(reached, name) && !strings.Contains(name, "init") && !refused {
			t.Errorf("control: a file of the sandbox is not reached by %s", name)
		}
	}
}

// wantReached is the control: on the host, each probe reaches a canary, and each canary is reached
// by a probe.
func wantReached(t testing.TB, paths []string) {
	t.Helper()
	probesReaching, pathsReached := map[string]bool{}, map[string]bool{}
	for _, a := range probeHost(t, append([]string{reachFiles}, paths...)...) {
		if a.succeeded() {
			probesReaching[a.Name], pathsReached[a.Path] = true, true
		}
	}
	for _, path := range paths {
		if !pathsReached[path] {
			t.Errorf("control: %s is not reached on the host", path)
		}
	}
	for name := range probesByPath {
		// A user other than root has no rights over PID 1 of the host.
		if !probesReaching[name] && (os.Geteuid() == 0 || !strings.Contains(name, "init")) {
			t.Errorf("control: nothing is reached by %s on the host", name)
		}
	}
}

// sandboxFiles returns some of the files that the engine stores on the host for another sandbox.
func sandboxFiles(t testing.TB, c *Config, e engine.Engine, dir string) (files []string) {
	t.Helper()
	other := c.start(t, e)
	other.want(t, "echo other > /tmp/mark && cat /tmp/mark", "other")
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && readOrConnect(path) == nil {
			files = append(files, path)
		}
		return nil
	})
	if len(files) == 0 {
		t.Fatal("control: the host stores no file for another sandbox")
	}
	return files[:min(len(files), 5)]
}

// tree returns the metadata of the files below a directory, without access times.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		found[path] = describe(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// differences lists the files that differ between two results of tree.
func differences(before, after map[string]string) (list []string) {
	for path, text := range before {
		if after[path] != text {
			list = append(list, fmt.Sprintf("%s was %s and is %q", path, text, after[path]))
		}
	}
	for path := range after {
		if before[path] == "" {
			list = append(list, path+" is new")
		}
	}
	return list
}

// Package unprivileged_test runs the real program as a user without privileges.
package unprivileged_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/programtest"
)

// unprivilegedUID is a user ID that no passwd file lists.
const unprivilegedUID = 61235

// userHome creates a home directory of that user with the program in it, because the user cannot
// enter the directory where go test builds.
func userHome(t *testing.T) string {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	dir, err := os.MkdirTemp("/var/tmp", "crannog-user-") // the user cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if _, err := programtest.Place(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "project"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "project", "data"), []byte("mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "project"), filepath.Join(dir, "project", "data")} {
		if err := os.Chown(path, unprivilegedUID, unprivilegedUID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// crannog runs a command of the program as the user.
func crannog(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "crannog"), args...)
	cmd.Dir = filepath.Join(dir, "project")
	cmd.Env = []string{"HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivilegedUID, Gid: unprivilegedUID}}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("crannog %v: %v", args, err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// P14: commands work for a user as for root, if user namespaces are allowed.
func TestRun(t *testing.T) {
	dir := userHome(t)
	if out, code := crannog(t, dir, "run", "--", "python3", "-c", "print(6*7)"); out != "42\n" || code != 0 {
		t.Fatalf("run python3: got %q, exit %d", out, code)
	}
	// The workspace belongs to the user, even files that only the owner may read. The user inside
	// may change its copy.
	out, code := crannog(t, dir, "run", "--", "sh", "-c", "cat data; id -un; echo changed > data && echo x > new && cat data")
	if out != "mine\nuser\nchanged\n" || code != 0 {
		t.Errorf("run a shell in the workspace: got %q, exit %d", out, code)
	}
	data, err := os.ReadFile(filepath.Join(dir, "project", "data"))
	if err != nil || string(data) != "mine\n" {
		t.Errorf("the host's file: %q %v", data, err)
	}
	if _, code := crannog(t, dir, "run", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("exit %d", code)
	}
}

func TestDetachedSandboxOfUser(t *testing.T) {
	dir := userHome(t)
	out, code := crannog(t, dir, "run", "-d", "--name", "kept", "--ttl", "5m", "--", "sleep", "300")
	if code != 0 {
		t.Fatalf("run in the background: got %q, exit %d", out, code)
	}
	if out, code := crannog(t, dir, "exec", "kept", "--", "sh", "-c", "pgrep -c sleep"); out != "1\n" || code != 0 {
		t.Errorf("exec: %q, exit %d", out, code)
	}
	if out, code := crannog(t, dir, "rm", "kept"); code != 0 {
		t.Errorf("rm: %q, exit %d", out, code)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".local/share/crannog/run/[a-z0-9]*")); err != nil || len(left) != 0 {
		t.Errorf("directories of sandboxes are left: %v %v", left, err)
	}
}

func TestDoctorWorksForUser(t *testing.T) {
	dir := userHome(t)
	out, code := crannog(t, dir, "doctor")
	if code != 0 || !strings.Contains(out, "engine") {
		t.Errorf("exit %d: %s", code, out)
	}
}

// TestRunExplainsMissingUserNamespaces checks that a user on a host without user namespaces gets
// the reason and the fix instead of a weaker sandbox. The host is a user namespace whose own limit
// is zero.
func TestRunExplainsMissingUserNamespaces(t *testing.T) {
	dir := userHome(t)
	runForbidden := func(args string) (string, int) {
		t.Helper()
		line := fmt.Sprintf("echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --reuid %d --regid %d --clear-groups %s/crannog %s",
			unprivilegedUID, unprivilegedUID, dir, args)
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
		cmd.Dir = filepath.Join(dir, "project")
		cmd.Env = []string{"HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin"}
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}, {ContainerID: unprivilegedUID, HostID: unprivilegedUID, Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
		}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := runForbidden("run -- true")
	if code != 125 || !strings.Contains(out, "max_user_namespaces") || !strings.Contains(out, "code=user_namespaces_unavailable") {
		t.Errorf("exit %d: %s", code, out)
	}
	if out, code := runForbidden("doctor"); code == 0 || !strings.Contains(out, "max_user_namespaces") {
		t.Errorf("doctor: exit %d: %s", code, out)
	}
}

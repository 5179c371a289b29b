package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// detectArg0 is the argv[0] of this program when it runs as a user and detects where groups can be
// created.
const detectArg0 = "cgroup-detect"

func TestMain(m *testing.M) {
	reexec.Dispatch(reexec.Role{Match: reexec.Arg0(detectArg0), Run: func() {
		if err := detectAndStart(); err != nil {
			fmt.Println("refused:", err)
		}
	}}, reexec.Role{Match: reexec.Arg0(filteredArg0), Run: filtered})
	os.Exit(m.Run())
}

// detectAndStart prints where groups can be created, the group and the limit of a program that it
// starts, and its own group.
func detectAndStart() error {
	tree, err := Detect()
	if err != nil {
		return err
	}
	g, err := tree.Create("box", limits)
	if err != nil {
		return err
	}
	fmt.Println(tree)
	cmd := exec.Command("/bin/cat", "/proc/self/cgroup", filepath.Join(g.Dirs[unified], "memory.max"), "/proc/self/gid_map")
	// Without root, the engine's child also gets a user namespace.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := g.Start(cmd); err != nil {
		return errors.Join(err, g.Remove())
	}
	if err := errors.Join(cmd.Wait(), g.Remove()); err != nil {
		return err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	fmt.Printf("self %s", own)
	return err
}

// testUserID is the ID of a user that owns nothing on the host.
const testUserID = 61236

// subtree creates a group in the real hierarchy, as a service manager does for its slices, and
// removes everything below it at the end.
func subtree(t *testing.T) string {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Unified)
	const top = "/sys/fs/cgroup"
	dir, err := os.MkdirTemp(top, "crannog-delegated-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var all []string
		if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				all = append(all, path)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		for _, path := range slices.Backward(all) {
			if err := removeDir(path); err != nil {
				t.Error(err)
			}
		}
	})
	for _, base := range []string{top, dir} {
		if err := write(filepath.Join(base, "cgroup.subtree_control"), "+cpu +memory +pids"); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// delegation lists the files that a service manager delegates together with a group.
var delegation = []string{"cgroup.procs", "cgroup.threads", "cgroup.subtree_control"}

// newGroupOf creates a group that belongs to a user.
func newGroupOf(t *testing.T, dir string, files []string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{""}, files...) {
		if err := os.Chown(filepath.Join(dir, name), testUserID, testUserID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runDetect runs this program in a group as a user, and returns its output.
func runDetect(t *testing.T, group string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("/proc/self/exe") // the user may not be able to enter its path
	cmd.Args = []string{detectArg0}
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUserID, Gid: testUserID}}
	if err := startInto(cmd, group); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the detecting process failed: %v: %s", err, out.String())
	}
	return out.String()
}

// wantGroupIn checks that the program creates its groups in a directory, and is itself in a group.
func wantGroupIn(t *testing.T, output, dir, self string) {
	t.Helper()
	path := func(dir string) string { return strings.TrimPrefix(dir, "/sys/fs/cgroup") }
	for _, want := range []string{
		"version 2, below " + dir + "\n", "0::" + path(dir) + "/box\n", "\n536870912\n", "self 0::" + path(self) + "\n",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("want %q in:\n%s", want, output)
		}
	}
}

// The delegated group is that of a user's service manager. The user's programs are in groups below
// it, for which the manager enables no controllers.
func TestDelegationToUser(t *testing.T) {
	top := subtree(t)
	service := newGroupOf(t, filepath.Join(top, "user@1.service"), delegation)
	newGroupOf(t, filepath.Join(service, "app.slice"), delegation)
	for _, name := range []string{"app.slice/one.scope", "session.slice"} {
		scope := newGroupOf(t, filepath.Join(service, name), delegation)
		wantGroupIn(t, runDetect(t, scope), filepath.Join(service, parentName), scope)
	}
}

// A service is started directly in the group that was delegated to it.
func TestDelegationToService(t *testing.T) {
	service := newGroupOf(t, filepath.Join(subtree(t), "crannog.service"), delegation)
	serverDir := filepath.Join(service, serverGroup)
	wantGroupIn(t, runDetect(t, service), filepath.Join(service, parentName), serverDir)
	// A program that the service starts later is in the same group, and detects the same place.
	wantGroupIn(t, runDetect(t, serverDir), filepath.Join(service, parentName), serverDir)
}

// A group that is only partly delegated, or that contains other processes, is not used.
func TestDelegationIncomplete(t *testing.T) {
	top := subtree(t)
	wantRefused := func(group, reason string) {
		t.Helper()
		output := runDetect(t, group)
		if !strings.HasPrefix(output, "refused:") || !strings.Contains(output, reason) {
			t.Errorf("%s: want %q in: %s", filepath.Base(group), reason, output)
		}
	}
	if err := os.Mkdir(filepath.Join(top, "roots"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantRefused(filepath.Join(top, "roots"), "permission denied")
	for _, missing := range []string{"cgroup.procs", "cgroup.subtree_control"} {
		files := slices.DeleteFunc(slices.Clone(delegation), func(name string) bool { return name == missing })
		wantRefused(newGroupOf(t, filepath.Join(top, "without-"+missing), files), "permission denied")
	}

	shared := newGroupOf(t, filepath.Join(top, "shared"), delegation)
	other := exec.Command("sleep", "1000")
	if err := startInto(other, shared); err != nil {
		t.Fatal(err)
	}
	wantRefused(shared, fmt.Sprintf("process %d is in", other.Process.Pid))
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // it was killed
	// As a control, the group is used without the other process.
	wantGroupIn(t, runDetect(t, shared), filepath.Join(shared, parentName), filepath.Join(shared, serverGroup))

	bare := filepath.Join(top, "bare")
	if err := os.Mkdir(bare, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(bare, "cgroup.subtree_control"), "+memory"); err != nil {
		t.Fatal(err)
	}
	wantRefused(newGroupOf(t, filepath.Join(bare, "memory"), delegation), "controller cpu is not available")
}

package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// membership returns the groups of a process below g, according to the kernel.
func membership(t *testing.T, g *Group) string {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command("sh", "-c", "cat /proc/self/cgroup; exit 0")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := g.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the program in the group failed: %v: %s", err, out.String())
	}
	return out.String()
}

// A program that is started in a group is in it, in every hierarchy. This process is in none of the
// groups and does not prevent their removal.
func TestStartIsInGroup(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	tree, err := Detect()
	if err != nil {
		t.Fatal(err)
	}
	id := "starttest" + strings.ToLower(strings.ReplaceAll(time.Now().Format("150405.000"), ".", ""))
	g, err := tree.Create(id, limits)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	text := membership(t, g)
	want := len(g.Dirs)
	if got := strings.Count(text, "/"+id+"\n"); got < 1 || tree.Version() == 1 && got < want {
		t.Errorf("in %d of %d groups:\n%s", got, want, text)
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, dir := range g.Dirs {
		for {
			tasks, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if err != nil {
				t.Fatal(err)
			}
			if len(tasks) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s still contains %s", dir, tasks)
			}
			runtime.Gosched()
		}
	}
}

// On hosts with controllers in version 1, the kernel can also create version 2 groups without
// controllers.
func TestStartIntoUnified(t *testing.T) {
	var v2 string
	hosttest.Need(t, hosttest.Root, hosttest.Requirement{Name: "control groups of version 2", RemoteTarget: hosttest.Unified.RemoteTarget, Has: func() bool {
		mounts, err := os.Open("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		defer mounts.Close()
		v2, _ = parseMounts(mounts)
		return v2 != ""
	}})
	dir, err := os.MkdirTemp(v2, "crannog-start-")
	if err != nil {
		t.Fatal(err)
	}
	g := &Group{Dirs: map[string]string{unified: dir}}
	defer func() {
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if text := membership(t, g); !strings.Contains(text, "0::/"+filepath.Base(dir)+"\n") {
		t.Errorf("not in %s:\n%s", dir, text)
	}
}

func TestStartFailsWithoutGroup(t *testing.T) {
	for _, g := range []*Group{
		{},
		{Dirs: map[string]string{"memory": filepath.Join(t.TempDir(), "gone")}},
		{Dirs: map[string]string{unified: filepath.Join(t.TempDir(), "gone")}},
	} {
		cmd := exec.Command("true")
		if err := g.Start(cmd); err == nil {
			t.Errorf("%v: started outside of any group: %v", g.Dirs, cmd.Wait())
		}
	}
}

// A kernel without this feature, or a container's filter that refuses it, is detected before a
// sandbox needs it.
func TestCheckStartInto(t *testing.T) {
	if err := checkStartInto(); err != nil {
		t.Errorf("control: %v", err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{filteredArg0}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "clone3: function not implemented") {
		t.Errorf("the filtered process printed %q, %v; want that clone3 is missing", out, err)
	}
}

// filteredArg0 is the argv[0] of this program when a filter refuses clone3.
const filteredArg0 = "cgroup-filtered"

// filtered installs a filter that refuses clone3, and prints the result of the check.
func filtered() {
	runtime.LockOSThread()
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE3, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
	}
	fmt.Println(err, checkStartInto())
}

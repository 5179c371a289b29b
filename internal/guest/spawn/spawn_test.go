package spawn_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/guest/lineage"
	"github.com/crannog/crannog/internal/guest/spawn"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

type forkExec func(path string, argv []string, attr *syscall.ProcAttr) (int, error)

// output starts a shell and returns its output. The input of the shell ends when start has
// returned.
func output(t *testing.T, start forkExec, script string, dir string, sys *syscall.SysProcAttr) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, started, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	attr := &syscall.ProcAttr{Dir: dir, Env: []string{"A=1", "B=x y"}, Files: []uintptr{in.Fd(), w.Fd(), w.Fd()}, Sys: sys}
	pid, err := start("/bin/sh", []string{"sh", "-c", script}, attr)
	started.Close()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 0 {
		t.Fatalf("got the status %v, %v: %s", status, err, got)
	}
	return string(bytes.TrimSpace(got))
}

// A program starts in the same state as with syscall.ForkExec. The guest's files are not open, and
// no signal is blocked, ignored or handled.
func TestSameStateAsForkExec(t *testing.T) {
	const show = `pwd; env | grep '^[AB]='; ls /proc/self/fd; grep -E '^(Sig(Blk|Ign|Cgt)|Uid|Gid|Groups|Cap)' /proc/self/status; ulimit -n
		cut -d' ' -f6 /proc/self/stat | grep -qx $$ && echo own session; true`
	dir := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]*syscall.SysProcAttr{"plain": {}, "session": {Setsid: true}}
	if os.Getuid() == 0 {
		user := &syscall.Credential{Uid: 1234, Gid: 2345, Groups: []uint32{7, 8}}
		cases["user"] = &syscall.SysProcAttr{Setsid: true, Credential: user}
		cases["no groups"] = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1234, Gid: 2345}}
		cases["process group"] = &syscall.SysProcAttr{Setpgid: true}
	}
	for name, sys := range cases {
		dir := dir
		if sys.Credential != nil {
			dir = "/"
		}
		first, second := *sys, *sys
		got, want := output(t, withoutMark, show, dir, &first), output(t, syscall.ForkExec, show, dir, &second)
		if got != want {
			t.Errorf("state, %s: got\n%s\nwant\n%s", name, got, want)
		}
		if !strings.Contains(got, dir+"\nA=1\nB=x y\n") || strings.Contains(got, "own session") != sys.Setsid {
			t.Errorf("%s: got the wrong directory, variables or session:\n%s", name, got)
		}
	}
}

// A failed start returns the error of the kernel and leaves no child.
func TestFailedStartLeavesNoChild(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("neither\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	locked := filepath.Join(dir, "locked")
	if err := os.WriteFile(locked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<18)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		path, dir, argument string
		want                error
	}{
		{dir + "/none", "", "", syscall.ENOENT},
		{text, "", "", syscall.ENOEXEC},
		{text + "/below", "", "", syscall.ENOTDIR},
		{locked, "", "", syscall.EACCES},
		{"/bin/true", dir + "/none", "", syscall.ENOENT},
		{"/bin/true", text, "", syscall.ENOTDIR},
		{"/bin/true", "", long, syscall.E2BIG},
		{"/bin/tr\x00ue", "", "", syscall.EINVAL},
		{"/bin/true", "a\x00b", "", syscall.EINVAL},
		{"/bin/true", "", "a\x00b", syscall.EINVAL},
	} {
		attr := &syscall.ProcAttr{Dir: c.dir, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}
		pid, err := spawn.ForkExec(c.path, []string{"x", c.argument}, attr, lineage.None)
		if !errors.Is(err, c.want) || pid != 0 {
			t.Errorf("%s in %q: got %d, %v, want %v", c.path, c.dir, pid, err, c.want)
		}
	}
	var status syscall.WaitStatus
	if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("got the child %d, %v, want none", pid, err)
	}
}

// The descriptors of the child may be those of the parent in another order.
func TestFilesInAnyOrder(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	attr := &syscall.ProcAttr{Files: []uintptr{2, w.Fd(), 1}, Sys: &syscall.SysProcAttr{}}
	pid, err := spawn.ForkExec("/bin/echo", []string{"echo", "here"}, attr, lineage.None)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(r)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || string(got) != "here\n" {
		t.Errorf("output of the child: got %q, %v, want here", got, err)
	}
}

// The garbage collector does not free or move memory that a child reads.
func TestManyStartsAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if got := output(t, withoutMark, `echo "$A $B"; pwd`, "/usr", &syscall.SysProcAttr{Setsid: true}); got != "1 x y\n/usr" {
					t.Errorf("state of the program: got %q, want 1, x y and /usr", got)
				}
				runtime.GC()
			}
		})
	}
	all.Wait()
}

// withoutMark starts a program without a mark, as syscall.ForkExec does.
func withoutMark(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	return spawn.ForkExec(path, argv, attr, lineage.None)
}

// The program has the mark, and so have its descendants, even in another session. The shell waits
// for the end of its input, because after syscall.ForkExec the mark is set only after the start.
func TestMark(t *testing.T) {
	mark := lineage.New()
	hosttest.Need(t, hosttest.Requirement{Name: "kernel that supports marks", Has: func() bool { return mark != lineage.None }})
	marked := func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		return spawn.ForkExec(path, argv, attr, mark)
	}
	const limit = `read -r _; env -i setsid grep 'Max file locks' /proc/self/limits; :`
	for name, sys := range map[string]*syscall.SysProcAttr{"steps": {Setsid: true}, "syscall.ForkExec": {Setpgid: true}} {
		if got := strings.Fields(output(t, marked, limit, "/", sys)); !slices.Contains(got, strconv.FormatUint(uint64(mark), 10)) {
			t.Errorf("mark, %s: got the limits %q, want %d", name, got, mark)
		}
	}
}

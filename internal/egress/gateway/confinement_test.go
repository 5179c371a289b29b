package gateway

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const canary = "canary-3f9a1c7e5b"

// The process has the rights, files and variables that it needs, and nothing else of the program
// that started it.
func TestProcessIsConfined(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	t.Setenv("CRANNOG_TEST_CANARY", canary)
	stray, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer stray.Close()
	inherit(t, stray)
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	a := testAttachment(t, dir, "box1")
	a.Secrets = []egress.Secret{{Name: "key", Value: canary, Host: "api.test", Port: 443, Header: "X-Key", Format: "{}"}}
	end, _, err := c.Attach(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	b := newTestPeer(t, end)
	wantGet(t, b, "/hello", 200)

	info := c.Info()
	if r := info.Confinement; r.UID != nobody || r.Capabilities || !r.NoNewPrivs || r.Dumpable || !r.Seccomp || r.Landlock == 0 {
		t.Errorf("the confinement is %+v, want user %d without any rights", r, nobody)
	}
	proc := fmt.Sprintf("/proc/%d/", info.PID)
	status := readFile(t, proc+"status")
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			t.Errorf("the process's status lacks %q", want)
		}
	}
	if cwd, err := os.Readlink(proc + "cwd"); err != nil || cwd != "/" {
		t.Errorf("the working directory is %q, want /: %v", cwd, err)
	}
	if session, parent := statField(t, proc+"stat", 5), statField(t, "/proc/self/stat", 5); session != fmt.Sprint(info.PID) || session == parent {
		t.Errorf("the process's session is %s, want its own; the test's is %s", session, parent)
	}
	for variable := range strings.SplitSeq(strings.TrimSuffix(readFile(t, proc+"environ"), "\x00"), "\x00") {
		name, _, _ := strings.Cut(variable, "=")
		setByConfine := name == confine.Variable || name == confine.Tunables
		if variable != "" && !setByConfine && !slices.Contains(environment(), variable) {
			t.Errorf("the environment contains %q", variable)
		}
	}
	if arguments := readFile(t, proc+"cmdline"); arguments != Arg0+"\x00"+filepath.Join(dir, dirName)+"\x00" {
		t.Errorf("the arguments are %q, want the directory only", arguments)
	}
	if got, want := openFileKinds(t, proc), []string{"/dev/null", "/dev/null", "eventpoll", "eventfd", "box1.ndjson", "lock", "log", "packages", "socket", "socket", "socket", "spool"}; !sameKinds(got, want) {
		t.Errorf("open files: got %v, want %v", got, want)
	}
	// The secret is in memory and nowhere else.
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(canary)) {
			t.Errorf("%s contains the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// statField returns a field of a stat file. Fields are numbered from 1, as in proc(5).
func statField(t *testing.T, path string, n int) string {
	t.Helper()
	_, rest, _ := strings.Cut(readFile(t, path), ") ")
	return strings.Fields(rest)[n-2]
}

// openFileKinds returns the kinds of the files that a process has open.
func openFileKinds(t *testing.T, proc string) []string {
	t.Helper()
	entries, err := os.ReadDir(proc + "fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(proc, "fd", e.Name()))
		if err != nil {
			continue
		}
		if kind, _, found := strings.Cut(target, ":["); found && !strings.HasPrefix(target, "/") {
			target = strings.TrimSuffix(strings.TrimPrefix(target, "anon_inode:["), "]")
			if kind != "anon_inode" {
				target = kind
			}
		} else if target != "/dev/null" {
			target = filepath.Base(target)
		}
		out = append(out, target)
	}
	return out
}

// sameKinds compares sets of kinds. It ignores the number of files of each kind, because the
// connection of a request may have just ended.
func sameKinds(got, want []string) bool {
	slices.Sort(got)
	slices.Sort(want)
	got, want = slices.Compact(got), slices.Compact(want)
	return slices.Equal(got, want)
}

// 256 concurrent sandboxes all have a network, and each needs at most 1 MiB of memory.
func TestMemoryOfManySandboxes(t *testing.T) {
	hosttest.Need(t, hosttest.Root) // to see what the process has open
	const many = 256
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	pid := c.Info().PID
	wantGet(t, mustAttach(t, c, dir, "warm"), "/hello", 200)
	if err := c.Detach(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	waitUntilSteady(t, "process", func() int { return descriptors(t, pid) })
	memory, open := residentKiB(t, pid), descriptors(t, pid)
	sandboxes := make([]*testPeer, many)
	for i := range sandboxes {
		sandboxes[i] = mustAttach(t, c, dir, fmt.Sprintf("box%d", i))
	}
	each := (residentKiB(t, pid) - memory) / many
	t.Logf("%d KiB resident before, %d KiB for each of %d attachments, %d descriptors", memory, each, many, descriptors(t, pid)-open)
	if each > 1024 {
		t.Errorf("an attachment needs %d KiB, want at most 1024", each)
	}
	for _, i := range []int{0, many / 2, many - 1} {
		wantGet(t, sandboxes[i], "/hello", 200)
	}
	if list, err := c.List(t.Context()); err != nil || len(list) != many {
		t.Errorf("List returned %d sandboxes, want %d: %v", len(list), many, err)
	}
	for _, b := range sandboxes {
		b.Close()
	}
	hosttest.EventuallyAtMost(t, "descriptors of the process", open, func() int { return descriptors(t, pid) })
	hosttest.EventuallyAtMost(t, "threads of the process", 20+runtime.NumCPU(), func() int {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		return len(threads)
	})
	// The last one is removed after its descriptors are closed.
	hosttest.EventuallyAtMost(t, "sandboxes", 0, func() int {
		list, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	})
}

// residentKiB returns a process's resident memory in KiB.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	var kib int
	_, rest, _ := strings.Cut(readFile(t, fmt.Sprintf("/proc/%d/status", pid)), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// inherit makes a descriptor inheritable by child processes.
func inherit(t *testing.T, f *os.File) {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 40)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
}

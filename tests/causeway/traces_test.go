package causeway_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// processes are all processes of this machine except this one, whose memory contains the value and
// the planted text.
func processes(t testing.TB) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// ofProcess reads a file of /proc of a process that may have ended.
func ofProcess(pid int, name string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return string(data)
}

// memoryContains reports whether a process has bytes in its memory, also in unnamed files, where gVisor
// keeps a sandbox's memory.
func memoryContains(t testing.TB, pid int, needle []byte) bool {
	t.Helper()
	for _, open := range openFiles(pid) {
		if strings.HasPrefix(open.to, "/memfd:") && inFile(t, open.path, needle) {
			return true
		}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(ofProcess(pid, "maps")) {
		fields := strings.Fields(line)
		// Mapped files are searched separately, or are on disk.
		if fields[1][0] != 'r' || len(fields) > 5 && strings.HasPrefix(fields[5], "/") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err == nil && holds(mem, from, to, needle) {
			return true
		}
	}
	return false
}

type openFile struct{ path, to string }

func openFiles(pid int) (list []openFile) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, p := range paths {
		if to, err := os.Readlink(p); err == nil {
			list = append(list, openFile{p, to})
		}
	}
	return list
}

// inFile returns where a file has bytes, without its holes, which reading would fill.
func inFile(t testing.TB, path string, needle []byte) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at := int64(0); ; {
		from, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return false
		}
		to, err2 := unix.Seek(int(f.Fd()), from, unix.SEEK_HOLE)
		if err != nil || err2 != nil {
			t.Fatal(path, err, err2)
		}
		if holds(f, from, to, needle) {
			return true
		}
		at = to
	}
}

func holds(r io.ReaderAt, from, to int64, needle []byte) bool {
	buf := make([]byte, 1<<20)
	for at := from; at < to; at += int64(len(buf) - len(needle)) {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		if bytes.Contains(buf[:n], needle) {
			return true
		}
		if err != nil {
			return false // a page that cannot be read
		}
	}
	return false
}

// P20, row S1 from outside: the value is neither in the sandbox's memory, as the host sees it, nor
// in any environment or argument of a process, nor in a file of the state, including the sandbox's
// own and a snapshot with memory. Text that was planted in each of these places is found.
func TestNoValueOnTheHost(t *testing.T) {
	need(t, hosttest.Root)
	t.Parallel()
	a := ownEnvironment(t)
	up := a.web(t, 443, nil, "api.s1h.test")
	// The program of the sandbox's kernel is this one: a constant would be in it.
	value, planted := "sk-"+rand.Text(), "planted-"+rand.Text()
	a.seal(t, "S1H", value)
	b := a.newSandbox(t, bound("S1H", "api.s1h.test"))
	b.must("curl -sS -m 300 https://api.s1h.test/")
	if len(up.seen()) != 1 || up.seen()[0].auth() != "Bearer "+value {
		t.Fatalf("it is not in use: %+v", up.seen())
	}
	if _, err := b.Exec(t.Context(), api.Exec{Cmd: []string{"sh", "-c", "(sleep 600 >/dev/null 2>&1 &); echo $1 > /workspace/planted || echo $1 > /tmp/planted", "sh", planted}, Env: map[string]string{"PLANTED": planted}}); err != nil {
		t.Fatal(err)
	}
	host := exec.CommandContext(t.Context(), "sh", "-c", "read x", planted)
	host.Env = []string{"PLANTED=" + planted}
	in, err := host.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = host.Wait() })
	n, err := b.Snapshot(t.Context(), api.CreateSnapshot{})
	if err != nil {
		t.Fatal(err)
	}
	if n.ID == "" {
		t.Fatal("no snapshot")
	}
	pid := servetest.CausewayPID(t, a.state)
	found := func(text string) []string {
		places := map[string]bool{}
		for _, p := range processes(t) {
			for _, name := range []string{"environ", "cmdline"} {
				if contains(ofProcess(p, name), text) {
					places[name] = true
				}
			}
			// Those of the sandbox, not the one that resolves its secrets.
			if line := ofProcess(p, "cmdline"); p != pid && strings.HasPrefix(line, "runsc-") && contains(line, a.state) && memoryContains(t, p, []byte(text)) {
				places["memory"] = true
			}
		}
		for _, path := range hosttest.Holding(t, a.state, text) {
			top, _, _ := strings.Cut(strings.TrimPrefix(path, a.state+"/"), "/")
			places[top] = true
		}
		return slices.Sorted(maps.Keys(places))
	}
	if got := found(value); len(got) > 0 {
		t.Errorf("the value is in %q", got)
	}
	got := found(planted)
	for _, place := range []string{"cmdline", "environ", "memory", "record", "recordings", "snapshots"} {
		if !slices.Contains(got, place) {
			t.Errorf("control: what was planted is not found in %s, but in %q", place, got)
		}
	}
	if !memoryContains(t, pid, []byte(value)) {
		t.Error("control: the process that sets the value does not have it in its memory")
	}
}

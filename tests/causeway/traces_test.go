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

// processes returns the processes of this machine except this one, whose memory contains the secret
// and the planted text.
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

// readProc reads a file of /proc about a process, which may have ended.
func readProc(pid int, name string) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	return string(data)
}

// memoryContains reports whether a process has some bytes in its memory. It also searches unnamed
// files, where gVisor keeps a sandbox's memory.
func memoryContains(t testing.TB, pid int, needle []byte) bool {
	t.Helper()
	for _, open := range openFiles(pid) {
		if strings.HasPrefix(open.target, "/memfd:") && fileContains(t, open.path, needle) {
			return true
		}
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for line := range strings.Lines(readProc(pid, "maps")) {
		fields := strings.Fields(line)
		// Mapped files are searched separately, or are on disk.
		if fields[1][0] != 'r' || len(fields) > 5 && strings.HasPrefix(fields[5], "/") {
			continue
		}
		var from, to int64
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err == nil && rangeContains(mem, from, to, needle) {
			return true
		}
	}
	return false
}

// openFile is a file that a process has open: its link in /proc and the link's target.
type openFile struct{ path, target string }

func openFiles(pid int) (list []openFile) {
	paths, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, p := range paths {
		if to, err := os.Readlink(p); err == nil {
			list = append(list, openFile{p, to})
		}
	}
	return list
}

// fileContains reports whether a file has some bytes. It skips holes, because reading would fill
// them.
func fileContains(t testing.TB, path string, needle []byte) bool {
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
		if rangeContains(f, from, to, needle) {
			return true
		}
		at = to
	}
}

// rangeContains reports whether a part of a file has some bytes.
func rangeContains(r io.ReaderAt, from, to int64, needle []byte) bool {
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

// P20, S1 as seen from the host: the secret is in no memory of the sandbox, and in no environment
// or argument of a process. It is in no file of the state directory, which includes a snapshot with
// memory. Text that was planted in each of these places is found.
func TestSecretIsNotOnHost(t *testing.T) {
	need(t, hosttest.Root)
	t.Parallel()
	a := ownEnvironment(t)
	up := a.web(t, 443, nil, "api.s1h.test")
	// The sandbox's kernel runs this test binary, whose memory would contain a constant.
	value, planted := "sk-"+rand.Text(), "planted-"+rand.Text()
	a.storeSecret(t, "S1H", value)
	b := a.newSandbox(t, boundPolicy("S1H", "api.s1h.test"))
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
				if contains(readProc(p, name), text) {
					places[name] = true
				}
			}
			// The memory of the sandbox's processes, not of the gateway, which needs the secret.
			if line := readProc(p, "cmdline"); p != pid && strings.HasPrefix(line, "runsc-") && contains(line, a.state) && memoryContains(t, p, []byte(text)) {
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
			t.Errorf("control: the planted text is not found in %s, but in %q", place, got)
		}
	}
	if !memoryContains(t, pid, []byte(value)) {
		t.Error("control: the secret is not in the memory of the gateway, which sends it")
	}
}

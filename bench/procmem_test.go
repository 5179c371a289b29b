package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParsePSS(t *testing.T) {
	const kinds = "Pss_Dirty:       999 kB\nPss_Anon:  1000 kB\nPss_File: 200 kB\nPss_Shmem: 34 kB\n"
	const rollup = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:            5000 kB\nPss:            1234 kB\n" + kinds
	want := memory{all: 1234 << 10, anon: 1000 << 10, file: 200 << 10, shmem: 34 << 10}
	if m, err := parsePSS(rollup); err != nil || m != want {
		t.Errorf("parsePSS: got %+v, %v, want %+v", m, err, want)
	}
	for _, bad := range []string{"", kinds, "Pss: 12\n" + kinds, "Pss: x kB\n" + kinds, "Pss: 1 MB\n" + kinds, "Pss: 1 kB\n"} {
		if m, err := parsePSS(bad); err == nil {
			t.Errorf("%q gave %+v", bad, m)
		}
	}
}

func TestPSSOfThisProcess(t *testing.T) {
	m, err := pssOf(os.Getpid())
	if err != nil || m.all < 1<<20 || m.all > 1<<33 || m.anon+m.file+m.shmem > m.all+4<<10 {
		t.Errorf("the memory of this process: got %+v, %v", m, err)
	}
	other := holdMemory(t)
	single, err := pssOf(other)
	if err != nil || single.anon < heldBytes || single.anon > 2*heldBytes {
		t.Fatalf("got %+v for a process with %d bytes: %v", single, heldBytes, err)
	}
	// One address space counts once; two address spaces count as both.
	if again, err := pssOf(other, other); err != nil || again.anon < heldBytes || again.anon >= 2*heldBytes {
		t.Errorf("one process twice: got %d, once %d: %v", again.anon, single.anon, err)
	}
	if both, err := pssOf(os.Getpid(), other); err != nil || both.anon < single.anon || both.all <= single.all {
		t.Errorf("two processes: got %+v, one of them %+v: %v", both, single, err)
	}
}

// heldBytes is large compared with a Go program's own memory.
const heldBytes = 48 << 20

// holdMemory starts a process with a constant, known amount of memory: the test's own memory grows
// and shrinks with the garbage collector.
func holdMemory(t *testing.T) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CRANNOG_HOLDS_MEMORY=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatalf("the process with memory did not report that it is ready: %v", err)
	}
	return cmd.Process.Pid
}

// TestMain is also the program of holdMemory.
func TestMain(m *testing.M) {
	if os.Getenv("CRANNOG_HOLDS_MEMORY") == "" {
		os.Exit(m.Run())
	}
	memory, err := unix.Mmap(-1, 0, heldBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	_, _ = os.Stdout.WriteString(".")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestMemoryFiles(t *testing.T) {
	const v1 = "9:name=systemd:/\n5:memory:/crannog/abc\n3:cpu,cpuacct:/crannog/abc\n0::/\n"
	if got := memoryFiles(v1); !slices.Equal(got, []string{"/sys/fs/cgroup/memory/crannog/abc/memory.usage_in_bytes"}) {
		t.Errorf("version 1: %v", got)
	}
	if got := memoryFiles("0::/system.slice/crannog/abc\n"); !slices.Equal(got, []string{"/sys/fs/cgroup/system.slice/crannog/abc/memory.current"}) {
		t.Errorf("version 2: %v", got)
	}
	// The root group's charge is that of the whole machine.
	if got := memoryFiles("5:memory:/\n0::/\n"); len(got) != 0 {
		t.Errorf("root: %v", got)
	}
}

func TestProcessesOf(t *testing.T) {
	state := t.TempDir()
	sb := filepath.Join(state, "run", "abc")
	if err := os.MkdirAll(sb, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(sb, "sandbox.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"id":"abc","sentry":{"pid":0},"gofer":{"pid":0}}`)
	if _, err := processesOf(state, "abc"); err == nil {
		t.Error("processesOf accepted a file without processes")
	}
	write(fmt.Sprintf(`{"id":"abc","sentry":{"pid":%d},"gofer":{"pid":0}}`, os.Getpid()))
	if p, err := processesOf(state, "abc"); err != nil || !slices.Contains(p.all(), os.Getpid()) || slices.Contains(p.all(), 0) {
		t.Errorf("without a file server: %v, %v", p, err)
	}
	if _, err := processesOf(state, "other"); err == nil {
		t.Error("processesOf accepted a sandbox without a file")
	}
}

func TestDescendants(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 60 & echo $!; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = exec.Command("kill", strings.TrimSpace(readLine(t, out))).Run()
		_ = cmd.Wait() // the shell ends with its child
	}()
	deadline := time.Now().Add(30 * time.Second)
	for {
		all, err := descendants(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(all, cmd.Process.Pid) && len(all) >= 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d and its child are not in %v", cmd.Process.Pid, all)
		}
	}
}

func readLine(t *testing.T, r interface{ Read([]byte) (int, error) }) string {
	t.Helper()
	buf := make([]byte, 32)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

func TestReadStart(t *testing.T) {
	s := &server{}
	block := "# crannog\nexport E2B_API_URL=http://127.0.0.1:1\nexport E2B_SANDBOX_URL=http://127.0.0.1:1\nexport E2B_API_KEY=e2b_1\n"
	if err := s.readStart(strings.NewReader(block)); err != nil || s.url != "http://127.0.0.1:1" || s.key != "e2b_1" {
		t.Errorf("readStart: got %+v, %v", s, err)
	}
	if err := (&server{}).readStart(strings.NewReader("nothing\n")); err == nil {
		t.Error("readStart accepted a server without an address")
	}
}

func TestBootMarks(t *testing.T) {
	m := &bootMarks{}
	log := slog.New(m)
	log.Info("something else", "kernel", time.Hour)
	for _, d := range []time.Duration{9, 1, 3} {
		log.Debug("sandbox booted", "sandbox", "abc", "kernel", d*time.Millisecond, "all", 2*d*time.Millisecond)
	}
	s := m.scores()
	if !slices.Equal(s.order, []string{"kernel", "all"}) || !slices.Equal(s.by["kernel"], series{1, 3}) {
		t.Errorf("got the steps %v with the durations %v, want two steps without the first boot", s.order, s.by)
	}
}

func TestReadPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	line := `{"task_id":"t/1","prompt":"def f(x):\n","canonical_solution":"    return x\n","test":"def check(c):\n    assert c(1) == 1\n","entry_point":"f"}` + "\n"
	if _, err := z.Write([]byte(line + line)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := readPrograms(path)
	if err != nil || len(all) != 2 || !strings.HasSuffix(all[1].text(), "check(f)\nprint('passed')\n") {
		t.Errorf("readPrograms: got %v, %v, want two programs", all, err)
	}
	if _, err := readPrograms(filepath.Join(t.TempDir(), "absent")); !os.IsNotExist(err) {
		t.Errorf("absent: %v", err)
	}
}

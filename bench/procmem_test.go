package main

import (
	"compress/gzip"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParsePSS(t *testing.T) {
	const kinds = "Pss_Dirty:       999 kB\nPss_Anon:  1000 kB\nPss_File: 200 kB\nPss_Shmem: 34 kB\n"
	const rollup = "55d0-7ffd ---p 00000000 00:00 0 [rollup]\nRss:            5000 kB\nPss:            1234 kB\n" + kinds
	want := memory{all: 1234 << 10, anon: 1000 << 10, file: 200 << 10, shmem: 34 << 10}
	if m, err := parsePSS(rollup); err != nil || m != want {
		t.Errorf("%+v %v", m, err)
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
		t.Errorf("%+v %v", m, err)
	}
	// One memory counts once, two count twice.
	if again, err := pssOf(os.Getpid(), os.Getpid()); err != nil || again.all > m.all*5/4 {
		t.Errorf("the same again %d, once %d: %v", again.all, m.all, err)
	}
	if parent, err := pssOf(os.Getpid(), os.Getppid()); err != nil || parent.all < m.all+1<<20 {
		t.Errorf("with the parent %d, alone %d: %v", parent.all, m.all, err)
	}
}

func TestMemoryFiles(t *testing.T) {
	const v1 = "9:name=systemd:/\n5:memory:/crannog/abc\n3:cpu,cpuacct:/crannog/abc\n0::/\n"
	if got := memoryFiles(v1); !slices.Equal(got, []string{"/sys/fs/cgroup/memory/crannog/abc/memory.usage_in_bytes"}) {
		t.Errorf("version 1: %v", got)
	}
	if got := memoryFiles("0::/system.slice/crannog/abc\n"); !slices.Equal(got, []string{"/sys/fs/cgroup/system.slice/crannog/abc/memory.current"}) {
		t.Errorf("version 2: %v", got)
	}
	// The root group's charge is the machine's.
	if got := memoryFiles("5:memory:/\n0::/\n"); len(got) != 0 {
		t.Errorf("root: %v", got)
	}
}

func TestProcessesOf(t *testing.T) {
	state := t.TempDir()
	box := filepath.Join(state, "run", "abc")
	if err := os.MkdirAll(box, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(box, "box.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"id":"abc","sentry":{"pid":0},"gofer":{"pid":0}}`)
	if _, err := processesOf(state, "abc"); err == nil {
		t.Error("a record without processes is accepted")
	}
	if _, err := processesOf(state, "other"); err == nil {
		t.Error("a box without a record is accepted")
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
		_ = cmd.Wait() // it ends with its child
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
		t.Errorf("%+v %v", s, err)
	}
	if err := (&server{}).readStart(strings.NewReader("nothing\n")); err == nil {
		t.Error("a server that says nothing has started")
	}
}

func TestBootMarks(t *testing.T) {
	m := &bootMarks{}
	log := slog.New(m)
	log.Info("something else", "kernel", time.Hour)
	for _, d := range []time.Duration{9, 1, 3} {
		log.Debug("box booted", "sandbox", "abc", "kernel", d*time.Millisecond, "all", 2*d*time.Millisecond)
	}
	s := m.scores()
	if !slices.Equal(s.order, []string{"kernel", "all"}) || !slices.Equal(s.by["kernel"], series{1, 3}) {
		t.Errorf("%v %v", s.order, s.by)
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
		t.Errorf("%v %v", all, err)
	}
	if _, err := readPrograms(filepath.Join(t.TempDir(), "absent")); !os.IsNotExist(err) {
		t.Errorf("absent: %v", err)
	}
}

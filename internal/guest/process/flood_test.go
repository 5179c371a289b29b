package process_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// 256 MiB without a newline pass through without being held: four times what the heap may hold.
func TestFloodedOutputIsDiscarded(t *testing.T) {
	b := newBench(t, nil)
	s := b.start(t, shell("head -c 268435456 /dev/zero"))
	var total, largest uint64
	chunk := 0
	var memory runtime.MemStats
	for n := 0; s.in.Receive(); n++ {
		data := s.in.Msg().GetEvent().GetData().GetStdout()
		total += uint64(len(data))
		chunk = max(chunk, len(data))
		if n%1000 == 0 {
			runtime.ReadMemStats(&memory)
			largest = max(largest, memory.HeapAlloc)
		}
	}
	if total != 256<<20 || s.in.Err() != nil {
		t.Errorf("%d bytes came, %v", total, s.in.Err())
	}
	if chunk > 32<<10 {
		t.Errorf("a chunk of %d bytes", chunk)
	}
	if largest > 64<<20 {
		t.Errorf("%d MiB of heap in use", largest>>20)
	}
}

// Output does not block a process without a listener.
func TestPortWithoutListener(t *testing.T) {
	b := newBench(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req := connect.NewRequest(shell("read go; head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2; echo > done"))
	s := b.startContext(ctx, t, req)
	cancel()
	s.finish()
	if err := b.feed(t, s, "\n"); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the process gets done", func() bool {
		_, err := os.Stat(filepath.Join(b.home, "done"))
		return err == nil
	})
}

// A client that reads slowly slows the process down, and loses nothing.
func TestSlowListener(t *testing.T) {
	b := newBench(t, nil)
	s := b.start(t, shell("i=0; while [ $i -lt 200 ]; do head -c 100000 /dev/zero; i=$((i+1)); echo $i > progress; done"))
	progress := func() string {
		data, err := os.ReadFile(filepath.Join(b.home, "progress"))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	// Data that fits into pipes and sockets is transferred. Then the process blocks.
	before := "none"
	hosttest.Eventually(t, "the process stands still", func() bool {
		now := progress()
		still := now == before
		before = now
		time.Sleep(100 * time.Millisecond)
		return still
	})
	if before == "200" {
		t.Fatal("all of the output was taken in without a reader")
	}
	total := 0
	for s.in.Receive() {
		total += len(s.in.Msg().GetEvent().GetData().GetStdout())
	}
	// Each of the 200 numbers is in the file and not in the output.
	if total != 200*100000 || s.in.Err() != nil {
		t.Errorf("%d bytes came, %v", total, s.in.Err())
	}
}

// A client that does not read must not keep a killed process alive.
func TestKillWithoutReader(t *testing.T) {
	b := newBench(t, nil)
	s := b.start(t, shell("cat /dev/zero"))
	if err := b.signal(t, s.selector(), pb.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.end.GetStatus() != "signal: killed" {
		t.Errorf("ended with %v, %v", r.end, r.err)
	}
}

// Neither descriptors nor goroutines of ended processes are left.
func TestNothingIsLeft(t *testing.T) {
	b := newBench(t, nil)
	run := func() {
		b.start(t, shell("echo x")).finish()
		b.start(t, terminal("echo x")).finish()
		in, err := b.Start(t.Context(), connect.NewRequest(&pb.StartRequest{Process: &pb.ProcessConfig{Cmd: "/nope"}, Pty: &pb.PTY{}}))
		if err != nil {
			t.Fatal(err)
		}
		for in.Receive() {
		}
		in.Close()
	}
	run()
	files, routines := descriptors(t), runtime.NumGoroutine()
	for range 30 {
		run()
	}
	hosttest.Eventually(t, "as many descriptors as before", func() bool { return descriptors(t) <= files })
	hosttest.Eventually(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= routines+2 })
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// BenchmarkStart measures from the request to the end of a shell.
func BenchmarkStart(b *testing.B) {
	bench := newBench(b, nil)
	for b.Loop() {
		if r := bench.start(b, shell("exit 0")).finish(); r.err != nil || r.end.GetExitCode() != 0 {
			b.Fatal(r)
		}
	}
}

// BenchmarkBare is the same shell without the service.
func BenchmarkBare(b *testing.B) {
	for b.Loop() {
		p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", "exit 0"}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

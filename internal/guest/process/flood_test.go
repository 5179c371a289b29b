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

// The guest forwards 256 MiB of output in small chunks and keeps its heap below 64 MiB. Otherwise a
// program could exhaust the memory of the guest.
func TestLargeOutputIsNotBuffered(t *testing.T) {
	b := newTestService(t, nil)
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
		t.Errorf("output: got %d bytes, %v, want 256 MiB", total, s.in.Err())
	}
	if chunk > 32<<10 {
		t.Errorf("got a chunk of %d bytes", chunk)
	}
	if largest > 64<<20 {
		t.Errorf("got a heap of %d MiB, want at most 64", largest>>20)
	}
}

// Output of a process without a client is discarded. It must not block the process.
func TestOutputWithoutClientDoesNotBlock(t *testing.T) {
	b := newTestService(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	req := connect.NewRequest(shell("read go; head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2; echo > done"))
	s := b.startContext(ctx, t, req)
	cancel()
	s.finish()
	if err := b.feed(t, s, "\n"); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the process finishes", func() bool {
		_, err := os.Stat(filepath.Join(b.home, "done"))
		return err == nil
	})
}

// If a client does not read, the process blocks and no output is lost.
func TestSlowClientBlocksTheProcess(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("i=0; while [ $i -lt 200 ]; do head -c 100000 /dev/zero; i=$((i+1)); echo $i > progress; done"))
	progress := func() string {
		data, err := os.ReadFile(filepath.Join(b.home, "progress"))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(data))
	}
	// The process blocks when pipes and sockets are full.
	before := "none"
	hosttest.Eventually(t, "the process blocks", func() bool {
		now := progress()
		blocked := now == before
		before = now
		time.Sleep(100 * time.Millisecond)
		return blocked
	})
	if before == "200" {
		t.Fatal("all output was read without a client that reads")
	}
	total := 0
	for s.in.Receive() {
		total += len(s.in.Msg().GetEvent().GetData().GetStdout())
	}
	if total != 200*100000 || s.in.Err() != nil {
		t.Errorf("output of the blocked process: got %d bytes, %v, want %d", total, s.in.Err(), 200*100000)
	}
}

// A client that does not read must not keep a killed process alive.
func TestKillWithoutReader(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("cat /dev/zero"))
	if err := b.signal(t, s.selector(), pb.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.end.GetStatus() != "signal: killed" {
		t.Errorf("got the end %v, %v", r.end, r.err)
	}
}

// Ended processes leave no descriptors and no goroutines.
func TestEndedProcessesLeaveNoResources(t *testing.T) {
	b := newTestService(t, nil)
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

// descriptors returns the number of open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// BenchmarkStart measures the time from the request of a shell to its end.
func BenchmarkStart(b *testing.B) {
	bench := newTestService(b, nil)
	for b.Loop() {
		if r := bench.start(b, shell("exit 0")).finish(); r.err != nil || r.end.GetExitCode() != 0 {
			b.Fatal(r)
		}
	}
}

// BenchmarkStartWithoutService runs the same shell without the service, for comparison.
func BenchmarkStartWithoutService(b *testing.B) {
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

package process_test

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// abandon starts a command, waits for its first output and closes the stream.
func (b *testService) abandon(t *testing.T, req *pb.StartRequest, hangup bool) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := connect.NewRequest(req)
	guestwire.SetHangup(r.Header(), hangup)
	s := b.startContext(ctx, t, r)
	s.until("up")
	cancel()
	return s
}

// ended reports whether the process has ended.
func (s *stream) ended() bool { return !alive(strconv.Itoa(int(s.pid))) }

// A command without a terminal reads the end of its input, and its writes fail. A command that does
// neither continues.
func TestHangup(t *testing.T) {
	b := newTestService(t, nil)
	endFile := filepath.Join(b.home, "endFile")
	reader := b.abandon(t, shell("echo up; cat; echo ended > "+endFile), true)
	writer := b.abandon(t, shell("echo up; while echo more; do sleep 0.01; done"), true)
	idle := b.abandon(t, shell("echo up; exec sleep 1000"), true)
	hosttest.Eventually(t, "the input ends", func() bool { _, err := os.Stat(endFile); return err == nil && reader.ended() })
	hosttest.Eventually(t, "a write fails", writer.ended)
	if idle.ended() {
		t.Error("the command that neither reads nor writes has ended")
	}
}

// A command on a terminal and the foreground program in a group of its own get SIGHUP.
func TestHangupOfTerminal(t *testing.T) {
	// If these tests run under nohup, programs would inherit that SIGHUP is ignored. A signal with a
	// handler is reset when a program starts.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	defer signal.Stop(handled)
	b := newTestService(t, nil)
	shellOnly := b.abandon(t, terminal("echo up; exec sleep 1000"), true)
	pid := filepath.Join(b.home, "pid")
	jobs := b.abandon(t, terminal("set -m; sh -c 'echo $$ > "+pid+"; echo up; exec sleep 1000'"), true)
	hosttest.Eventually(t, "the program on the terminal ends", shellOnly.ended)
	hosttest.Eventually(t, "the shell ends", jobs.ended)
	number, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the foreground job ends", func() bool { return !alive(strings.TrimSpace(string(number))) })
}

// Without the header, a command outlives its stream, as in E2B.
func TestCommandOutlivesItsStreamWithoutHangup(t *testing.T) {
	b := newTestService(t, nil)
	gate := filepath.Join(b.home, "gate")
	s := b.abandon(t, shell("echo up; until [ -e "+gate+" ]; do echo more; sleep 0.01; done; read x; echo $x > "+gate), false)
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.feed(t, s, "read\n"); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the command reads its input", func() bool { data, _ := os.ReadFile(gate); return string(data) == "read\n" })
}

// If another stream shows the output, the command can still write.
func TestHangupKeepsTheOutputOfOtherStreams(t *testing.T) {
	b := newTestService(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	r := connect.NewRequest(shell("echo up; cat; echo after"))
	guestwire.SetHangup(r.Header(), true)
	s := b.startContext(ctx, t, r)
	s.until("up")
	in, err := b.connect(t, s.selector())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	var got result
	for in.Receive() {
		got.add(in.Msg().GetEvent())
	}
	if got.stdout != "after\n" || got.end.GetStatus() != "exit status 0" {
		t.Errorf("other stream: got %+v, %v", got, in.Err())
	}
}

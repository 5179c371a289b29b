package process_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// abandon starts a command that is hung up with its stream, waits for its first output and leaves.
func (b *bench) abandon(t *testing.T, req *pb.StartRequest, hangup bool) *stream {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	r := connect.NewRequest(req)
	guestwire.SetHangup(r.Header(), hangup)
	s := b.startContext(ctx, t, r)
	s.until("up")
	leave()
	return s
}

func (s *stream) ended() bool { return !alive(strconv.Itoa(int(s.pid))) }

// A command without a terminal reads the end of its input, or fails to write. One that does neither
// continues.
func TestHangup(t *testing.T) {
	b := newBench(t, nil)
	told := filepath.Join(b.home, "told")
	reader := b.abandon(t, shell("echo up; cat; echo ended > "+told), true)
	writer := b.abandon(t, shell("echo up; while echo more; do sleep 0.01; done"), true)
	quiet := b.abandon(t, shell("echo up; exec sleep 1000"), true)
	hosttest.Eventually(t, "the input ends", func() bool { _, err := os.Stat(told); return err == nil && reader.ended() })
	hosttest.Eventually(t, "a write fails", writer.ended)
	if quiet.ended() {
		t.Error("a command that uses neither was ended")
	}
}

// A command on a terminal gets SIGHUP, as does the program in the foreground in a group of its own.
func TestHangupOfATerminal(t *testing.T) {
	b := newBench(t, nil)
	shellOnly := b.abandon(t, terminal("echo up; exec sleep 1000"), true)
	pid := filepath.Join(b.home, "pid")
	jobs := b.abandon(t, terminal("set -m; sh -c 'echo $$ > "+pid+"; echo up; exec sleep 1000'"), true)
	hosttest.Eventually(t, "the program on the terminal ends", shellOnly.ended)
	hosttest.Eventually(t, "the shell ends", jobs.ended)
	number, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the job in the foreground ends", func() bool { return !alive(strings.TrimSpace(string(number))) })
}

// Without the header a command outlives its stream, as on E2B.
func TestWithoutHangup(t *testing.T) {
	b := newBench(t, nil)
	gate := filepath.Join(b.home, "gate")
	s := b.abandon(t, shell("echo up; until [ -e "+gate+" ]; do echo more; sleep 0.01; done; read x; echo $x > "+gate), false)
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := b.feed(t, s, "read\n"); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "it reads its input", func() bool { data, _ := os.ReadFile(gate); return string(data) == "read\n" })
}

// Another stream that shows the output keeps it.
func TestHangupWithAnotherListener(t *testing.T) {
	b := newBench(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	r := connect.NewRequest(shell("echo up; cat; echo after"))
	guestwire.SetHangup(r.Header(), true)
	s := b.startContext(ctx, t, r)
	s.until("up")
	in, err := b.connect(t, s.selector())
	if err != nil {
		t.Fatal(err)
	}
	leave()
	var seen result
	for in.Receive() {
		seen.add(in.Msg().GetEvent())
	}
	if seen.stdout != "after\n" || seen.end.GetStatus() != "exit status 0" {
		t.Errorf("the other stream: %+v %v", seen, in.Err())
	}
}

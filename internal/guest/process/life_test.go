package process_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/guestwire"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// signal signals a process.
func (b *testService) signal(t *testing.T, sel *pb.ProcessSelector, sig pb.Signal) error {
	t.Helper()
	_, err := b.SendSignal(t.Context(), connect.NewRequest(&pb.SendSignalRequest{Process: sel, Signal: sig}))
	return err
}

// feed sends input to a process.
func (b *testService) feed(t *testing.T, s *stream, data string) error {
	t.Helper()
	input := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte(data)}}
	_, err := b.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{Process: s.selector(), Input: input}))
	return err
}

// closeStdin closes the input of a process.
func (b *testService) closeStdin(t *testing.T, s *stream) error {
	t.Helper()
	_, err := b.CloseStdin(t.Context(), connect.NewRequest(&pb.CloseStdinRequest{Process: s.selector()}))
	return err
}

func TestStdin(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("cat"))
	big := strings.Repeat("0123456789abcdef", 64<<10) // more than a pipe holds
	done := make(chan result)
	go func() { done <- s.finish() }()
	for _, data := range []string{"first\n", big, "last"} {
		if err := b.feed(t, s, data); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := b.closeStdin(t, s); err != nil {
			t.Fatal(err)
		}
	}
	if r := <-done; r.stdout != "first\n"+big+"last" {
		t.Errorf("input that the process returned: got %d bytes, %v, want %d", len(r.stdout), r.err, len("first\n"+big+"last"))
	}
	if err := b.feed(t, s, "x"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("input after the end: got %v", err)
	}
}

func TestStdinMayBeDisabled(t *testing.T) {
	b := newTestService(t, nil)
	req := shell("cat; read x; echo end")
	req.Stdin = new(bool)
	s := b.start(t, req)
	if r := s.finish(); r.stdout != "end\n" {
		t.Errorf("without stdin: got %+v", r)
	}
	req = shell("sleep 1000")
	req.Stdin = new(bool)
	s = b.start(t, req)
	if err := b.feed(t, s, "x"); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("input without stdin: got %v", err)
	}
	if err := b.closeStdin(t, s); err != nil {
		t.Errorf("CloseStdin without stdin: got %v", err)
	}
}

// A process that does not read must not block the request for ever.
func TestUnreadStdinDoesNotBlockForever(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("sleep 1000"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	input := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: make([]byte, 1<<20)}}
	_, err := b.SendInput(ctx, connect.NewRequest(&pb.SendInputRequest{Process: s.selector(), Input: input}))
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Errorf("input that is not read: got %v, want DeadlineExceeded", err)
	}
	if err := b.closeStdin(t, s); err != nil {
		t.Error(err)
	}
	if err := b.feed(t, s, "x"); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("input after CloseStdin: got %v", err)
	}
}

func TestSignals(t *testing.T) {
	b := newTestService(t, nil)
	for sig, want := range map[pb.Signal]string{pb.Signal_SIGNAL_SIGKILL: "signal: killed", pb.Signal_SIGNAL_SIGTERM: "signal: terminated"} {
		s := b.start(t, shell("sleep 1000; true"))
		if err := b.signal(t, s.selector(), sig); err != nil {
			t.Fatal(err)
		}
		if r := s.finish(); r.end.GetStatus() != want || r.end.GetExitCode() != -1 {
			t.Errorf("after signal %v: got %+v, want the end %s", sig, r, want)
		}
		if err := b.signal(t, s.selector(), sig); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v after the end: got %v", sig, err)
		}
	}
	none := &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: 1 << 30}}
	err := b.signal(t, none, pb.Signal_SIGNAL_SIGKILL)
	if connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "process with pid 1073741824 not found") {
		t.Errorf("unknown PID: got %v", err)
	}
	s := b.start(t, shell("sleep 1000"))
	if err := b.signal(t, s.selector(), pb.Signal_SIGNAL_UNSPECIFIED); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no signal: got %v", err)
	}
	if err := b.signal(t, nil, pb.Signal_SIGNAL_SIGKILL); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no process: got %v", err)
	}
}

// A child that left the group and holds the pipes must not keep the stream open after a signal to
// the group has ended the process.
func TestEscapedChildDoesNotKeepTheStream(t *testing.T) {
	b := newTestService(t, nil)
	pid := filepath.Join(b.home, "pid")
	// The child writes its PID only after it has left the group. Before, the signal would end it
	// too.
	s := b.start(t, shell("setsid sh -c 'echo $$ > "+pid+"; exec sleep 1000' & until [ -s "+pid+" ]; do sleep 0.01; done; echo started; wait"))
	s.until("started")
	if err := b.signal(t, s.selector(), 2); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.end.GetStatus() != "signal: interrupt" {
		t.Errorf("got %+v, want the end by SIGINT", r)
	}
	output, err := os.ReadFile(pid)
	child, _ := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || !alive(strconv.Itoa(child)) {
		t.Fatalf("control: the child %q has ended too, %v", output, err)
	}
	if err := unix.Kill(child, unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

// A background child that holds the output keeps the stream open, so that its output arrives.
func TestBackgroundChildKeepsStream(t *testing.T) {
	b := newTestService(t, nil)
	gate := filepath.Join(b.home, "gate")
	s := b.start(t, shell("(until [ -e "+gate+" ]; do sleep 0.01; done; echo late) & echo early"))
	s.until("early")
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.stdout != "late\n" || r.end.GetStatus() != "exit status 0" {
		t.Errorf("command with a background child: got %+v, want the output late and exit status 0", r)
	}
}

// F14: a caller can choose not to wait for background processes, which continue, and still gets all
// output of the command itself.
func TestF14WaitDelayLimitsTheWaitForChildren(t *testing.T) {
	b := newTestService(t, nil)
	gate, printed := filepath.Join(b.home, "gate"), filepath.Join(b.home, "printed")
	req := connect.NewRequest(shell("(until [ -e " + gate + " ]; do sleep 0.01; done; echo late && echo late >&2 && echo > " + printed + ") & head -c 300000 /dev/zero; exit 3"))
	req.Header().Set(guestwire.WaitDelayHeader, "1")
	r := b.startContext(t.Context(), t, req).finish()
	if len(r.stdout) != 300000 || r.end.GetExitCode() != 3 {
		t.Errorf("output of the command: got %d bytes, %v, %v, want 300000 and exit code 3", len(r.stdout), r.end, r.err)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the child can still print", func() bool { _, err := os.Stat(printed); return err == nil })
	for _, bad := range []string{"0", "-1", "x", "1e3", "99999999999999999999"} {
		req := connect.NewRequest(shell("true"))
		req.Header().Set(guestwire.WaitDelayHeader, bad)
		if err := startFails(t, b, req); err.Code() != connect.CodeInvalidArgument {
			t.Errorf("start with the delay %q: got %v, want InvalidArgument", bad, err)
		}
	}
}

func TestListAndTags(t *testing.T) {
	b := newTestService(t, nil)
	tag := "mine"
	req := shell("sleep 1000")
	req.Tag = &tag
	s := b.start(t, req)
	list, err := b.List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 1 {
		t.Fatalf("got %v, %v, want one process", list, err)
	}
	p := list.Msg.GetProcesses()[0]
	if p.GetPid() != s.pid || p.GetTag() != tag || p.GetConfig().GetCmd() != "/bin/sh" {
		t.Errorf("listed process: got %v, want PID %d with the tag %s", p, s.pid, tag)
	}
	byTag := &pb.ProcessSelector{Selector: &pb.ProcessSelector_Tag{Tag: tag}}
	if err := b.signal(t, byTag, pb.Signal_SIGNAL_SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.finish()
	list, err = b.List(t.Context(), connect.NewRequest(&pb.ListRequest{}))
	if err != nil || len(list.Msg.GetProcesses()) != 0 {
		t.Errorf("after the end: got %v, %v", list, err)
	}
}

// connect opens a second stream of a process.
func (b *testService) connect(t *testing.T, sel *pb.ProcessSelector) (*connect.ServerStreamForClient[pb.ConnectResponse], error) {
	t.Helper()
	in, err := b.Connect(t.Context(), connect.NewRequest(&pb.ConnectRequest{Process: sel}))
	if err != nil {
		t.Fatal(err)
	}
	if !in.Receive() {
		return nil, in.Err()
	}
	if in.Msg().GetEvent().GetStart() == nil {
		t.Fatalf("got the first event %v", in.Msg())
	}
	return in, nil
}

func TestConnect(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("echo before; read x; echo after"))
	s.until("before")
	in, err := b.connect(t, s.selector())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.feed(t, s, "\n"); err != nil {
		t.Fatal(err)
	}
	var got result
	for in.Receive() {
		got.add(in.Msg().GetEvent())
	}
	if got.stdout != "after\n" || got.end.GetStatus() != "exit status 0" {
		t.Errorf("second stream: got %+v, %v", got, in.Err())
	}
	if r := s.finish(); r.stdout != "after\n" {
		t.Errorf("first stream: got %+v", r)
	}
	// A stream that is opened after the end gets the end.
	in, err = b.connect(t, s.selector())
	if err != nil {
		t.Fatal(err)
	}
	if !in.Receive() || in.Msg().GetEvent().GetEnd().GetStatus() != "exit status 0" {
		t.Errorf("stream after the end: got %v, %v", in.Msg(), in.Err())
	}
	none := &pb.ProcessSelector{Selector: &pb.ProcessSelector_Pid{Pid: 1 << 30}}
	if _, err := b.connect(t, none); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("unknown process: got %v", err)
	}
}

func TestKeepalive(t *testing.T) {
	b := newTestService(t, nil)
	gate := filepath.Join(b.home, "gate")
	req := connect.NewRequest(shell("until [ -e " + gate + " ]; do sleep 0.01; done"))
	req.Header().Set("Keepalive-Ping-Interval", "1")
	// Without the header, the first keepalive would be sent after 90 s.
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	started := time.Now()
	s := b.startContext(ctx, t, req)
	var r result
	for r.keepalives == 0 && s.in.Receive() {
		r.add(s.in.Msg().GetEvent())
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	rest := s.finish()
	// One keepalive is sent for each second without output.
	limit := int(time.Since(started) / time.Second)
	if n := r.keepalives + rest.keepalives; n < 1 || n > limit || rest.end.GetStatus() != "exit status 0" {
		t.Errorf("got %d keepalives, want 1 to %d: %+v", n, limit, rest)
	}
}

// Close cuts all streams. A clean end would look like the end of the command.
func TestCloseBreaksStreamsOff(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, shell("sleep 1000 & echo $!; wait"))
	s.until("\n")
	pid := s.pid
	if err := b.service.Close(); err != nil {
		t.Fatal(err)
	}
	r := s.finish()
	if r.end != nil || r.err == nil {
		t.Errorf("got %+v, want a broken stream", r)
	}
	if alive(strconv.Itoa(int(pid))) {
		t.Error("the process still runs")
	}
	in, err := b.Start(t.Context(), connect.NewRequest(shell("true")))
	if err != nil {
		t.Fatal(err)
	}
	if in.Receive() || connect.CodeOf(in.Err()) != connect.CodeUnavailable {
		t.Errorf("start after Close: got %v, %v", in.Msg(), in.Err())
	}
}

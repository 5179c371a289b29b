package process_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
)

// terminal returns a request that starts a shell command on a terminal.
func terminal(command string) *pb.StartRequest {
	req := shell(command)
	req.Pty = &pb.PTY{Size: &pb.PTY_Size{Cols: 91, Rows: 37}}
	return req
}

// typeIn sends input to the terminal of a process.
func (b *testService) typeIn(t *testing.T, s *stream, data string) error {
	t.Helper()
	input := &pb.ProcessInput{Input: &pb.ProcessInput_Pty{Pty: []byte(data)}}
	_, err := b.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{Process: s.selector(), Input: input}))
	return err
}

func TestTerminal(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, terminal("stty size; test -t 0 && test -t 1 && test -t 2 && echo all tty; read x; echo got $x; stty size"))
	s.until("all tty")
	size := &pb.PTY{Size: &pb.PTY_Size{Cols: 120, Rows: 40}}
	if _, err := b.Update(t.Context(), connect.NewRequest(&pb.UpdateRequest{Process: s.selector(), Pty: size})); err != nil {
		t.Fatal(err)
	}
	if err := b.typeIn(t, s, "words\n"); err != nil {
		t.Fatal(err)
	}
	r := s.finish()
	if !strings.Contains(r.tty, "got words\r\n40 120\r\n") || r.end.GetStatus() != "exit status 0" || r.stdout != "" {
		t.Errorf("program on a terminal: got %+v, want its words, the size 40 120 and exit status 0", r)
	}
}

func TestTerminalSize(t *testing.T) {
	b := newTestService(t, nil)
	if r := b.start(t, terminal("stty size")).finish(); r.tty != "37 91\r\n" {
		t.Errorf("stty size: got %+v, want 37 91", r)
	}
}

func TestTerminalInterrupt(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, terminal("exec cat"))
	if err := b.typeIn(t, s, "ready\n"); err != nil {
		t.Fatal(err)
	}
	s.until("ready\r\nready\r\n") // the echo, and then the output of cat
	if err := b.typeIn(t, s, "\x03"); err != nil {
		t.Fatal(err)
	}
	if r := s.finish(); r.end.GetStatus() != "signal: interrupt" {
		t.Errorf("got %+v, want the end by SIGINT", r)
	}
}

// A program that closes its descriptors may open the terminal again, and its exit status is
// reported.
func TestTerminalStaysOpenUntilTheProgramEnds(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, terminal("echo out; exec <&- >&- 2>&-; sleep 0.3; echo back >/dev/tty; sleep 0.1; exit 7"))
	r := s.finish()
	if r.tty != "out\r\nback\r\n" || r.end.GetStatus() != "exit status 7" {
		t.Errorf("program that opens its terminal again: got %+v, want out, back and exit status 7", r)
	}
}

// A shell's background processes do not keep a terminal's stream open.
func TestTerminalEndsWithItsShell(t *testing.T) {
	b := newTestService(t, nil)
	s := b.start(t, terminal("trap '' HUP; sleep 30 & echo over"))
	r := s.finish()
	if r.tty != "over\r\n" || r.end.GetStatus() != "exit status 0" {
		t.Errorf("shell with a background process: got %+v, want over and exit status 0", r)
	}
}

func TestTerminalErrors(t *testing.T) {
	b := newTestService(t, nil)
	withTTY, withoutTTY := b.start(t, terminal("sleep 1000")), b.start(t, shell("sleep 1000"))
	if err := b.closeStdin(t, withTTY); connect.CodeOf(err) != connect.CodeUnknown {
		t.Errorf("CloseStdin of a terminal: got %v", err)
	}
	if err := b.feed(t, withTTY, "x"); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("stdin input for a terminal: got %v", err)
	}
	if err := b.typeIn(t, withoutTTY, "x"); connect.CodeOf(err) != connect.CodeInternal {
		t.Errorf("pty input without a terminal: got %v", err)
	}
	size := &pb.PTY{Size: &pb.PTY_Size{Cols: 1, Rows: 1}}
	if _, err := b.Update(t.Context(), connect.NewRequest(&pb.UpdateRequest{Process: withoutTTY.selector(), Pty: size})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("resizing without a terminal: got %v", err)
	}
}

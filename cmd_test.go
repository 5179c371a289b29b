package crannog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestOutput(t *testing.T) {
	sb := newSandbox(t, Env(map[string]string{"FROM_BOX": "1"}))
	cmd := sb.CommandContext(t.Context(), "sh", "-c", `echo "$FROM_BOX $MINE $0"; echo err >&2; exit 3`, "zero")
	cmd.Env = []string{"MINE=2"}
	out, err := cmd.Output()
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || exit.ExitCode() != 3 || string(exit.Stderr) != "err\n" {
		t.Fatalf("Output: error %#v, want exit code 3", err)
	}
	if string(out) != "1 2 zero\n" {
		t.Errorf("output: %q", out)
	}
}

func TestCombinedOutputContainsBothStreams(t *testing.T) {
	out, err := newSandbox(t).Command("sh", "-c", "echo a; echo b >&2").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a\n") || !strings.Contains(string(out), "b\n") {
		t.Errorf("CombinedOutput: got %q, error %v", out, err)
	}
}

func TestStdin(t *testing.T) {
	sb := newSandbox(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	cmd := sb.Command("cat")
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil || !bytes.Equal(out, data) {
		t.Errorf("%d bytes came back of %d: %v", len(out), len(data), err)
	}
}

// delayedTransport delays the response to CloseStdin until the command has ended,
// and then sends the error of the call's context to the channel callErr.
type delayedTransport struct {
	http.RoundTripper
	ended   <-chan struct{}
	callErr chan error
}

func (l delayedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.RoundTripper.RoundTrip(r)
	if strings.HasSuffix(r.URL.Path, "CloseStdin") {
		<-l.ended
		l.callErr <- r.Context().Err()
	}
	return res, err
}

// The end of a command does not cancel the call that sends the end of its input: that could close a
// connection that another command's call already uses.
func TestProgramExitDoesNotCancelCloseStdin(t *testing.T) {
	sb := newSandbox(t)
	ended := make(chan struct{})
	transport := delayedTransport{sb.client.http.Transport, ended, make(chan error, 1)}
	sb.client.http.Transport = transport
	cmd := sb.Command("cat")
	cmd.Stdin = strings.NewReader("x")
	if out, err := cmd.Output(); err != nil || string(out) != "x" {
		t.Errorf("Output: got %q, error %v", out, err)
	}
	close(ended)
	if err := <-transport.callErr; err != nil {
		t.Errorf("the CloseStdin call was canceled: %v", err)
	}
}

// A program whose input cannot be sent is killed. It neither waits forever nor sees an end of input
// after a part.
func TestLostInput(t *testing.T) {
	sb := newSandbox(t)
	for _, lost := range []string{"SendInput", "CloseStdin"} {
		plain := sb.client.http.Transport
		sb.client.http.Transport = failingTransport{plain, lost}
		cmd := sb.CommandContext(t.Context(), "sh", "-c", "cat; echo end")
		cmd.Stdin = strings.NewReader("x")
		out, err := cmd.Output()
		sb.client.http.Transport = plain
		if e, ok := errors.AsType[*Error](err); !ok || e.Code != "input_lost" || strings.Contains(string(out), "end") {
			t.Errorf("without %s: got output %q, error %v", lost, out, err)
		}
	}
	// A program that does not need its input ends as usual.
	sb.client.http.Transport = failingTransport{sb.client.http.Transport, "CloseStdin"}
	cmd := sb.CommandContext(t.Context(), "echo", "done")
	cmd.Stdin = strings.NewReader("x")
	if out, err := cmd.Output(); err != nil || string(out) != "done\n" {
		t.Errorf("Output: got %q, error %v", out, err)
	}
}

// failingTransport fails the requests to one path.
type failingTransport struct {
	http.RoundTripper
	path string
}

func (w failingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, w.path) {
		return nil, io.ErrClosedPipe
	}
	return w.RoundTripper.RoundTrip(r)
}

func TestPipes(t *testing.T) {
	cmd := newSandbox(t).CommandContext(t.Context(), "cat")
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
	// Each line returns before the next one is sent: no output is held back.
	buf := make([]byte, 5)
	for range 3 {
		if _, err := io.WriteString(in, "line\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, buf); err != nil || string(buf) != "line\n" {
			t.Fatalf("ReadFull: got %q, error %v", buf, err)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("ReadAll: got %q, error %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStartErrors(t *testing.T) {
	sb := newSandbox(t)
	err := sb.Command("no-such-program").Run()
	if !errors.Is(err, ErrNotFound) || Code(err) != "command_not_found" {
		t.Errorf("not found: %v %s", err, Code(err))
	}
	err = sb.Command("/etc/passwd").Run()
	if !errors.Is(err, ErrDenied) || Code(err) != "command_not_executable" {
		t.Errorf("not executable: %v %s", err, Code(err))
	}
	cmd := sb.Command("true")
	cmd.Dir = "/no/such/dir"
	if err := cmd.Run(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "/no/such/dir") {
		t.Errorf("cwd: %v", err)
	}
	cmd = sb.Command("true")
	cmd.User = "no-such-user"
	if err := cmd.Run(); Code(err) != "unknown_user" {
		t.Errorf("user: %v %s", err, Code(err))
	}
	cmd = sb.Command("true")
	cmd.Env = []string{"broken"}
	if err := cmd.Run(); err == nil {
		t.Error("an invalid variable was accepted")
	}
	if err := sb.Command("").Run(); err == nil {
		t.Error("an empty command was accepted")
	}
}

func TestSignal(t *testing.T) {
	cmd := newSandbox(t).CommandContext(t.Context(), "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.02; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	exit, ok := errors.AsType[*ExitError](cmd.Wait())
	if !ok || exit.ExitCode() != 9 {
		t.Errorf("Wait: got %v, want exit code 9", exit)
	}
}

func TestKilledBySignal(t *testing.T) {
	exit, ok := errors.AsType[*ExitError](newSandbox(t).Command("sh", "-c", "kill -KILL $$").Run())
	if !ok || exit.ExitCode() != 137 || exit.Signal() != syscall.SIGKILL {
		t.Errorf("Run: got %#v, want exit code 137 and SIGKILL", exit)
	}
}

func TestTimeoutKills(t *testing.T) {
	cmd := newSandbox(t).Command("sleep", "60")
	cmd.Timeout = 100 * time.Millisecond
	err := cmd.Run()
	exit, ok := errors.AsType[*ExitError](err)
	if !ok || exit.ExitCode() != 124 || !errors.Is(err, ErrTimeout) {
		t.Errorf("Run: error %#v", err)
	}
}

func TestContextKills(t *testing.T) {
	sb := newSandbox(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := sb.CommandContext(ctx, "sleep", "60").Run(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Run: error %v", err)
	}
	// The program itself has ended, and not only the stream.
	waitProcesses(t, sb, 0)
}

func TestTerminal(t *testing.T) {
	cmd := newSandbox(t).Command("sh", "-c", "stty size; test -t 0 && test -t 1 && echo terminal")
	cmd.TTY = &Size{Cols: 101, Rows: 33}
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "33 101") || !strings.Contains(string(out), "terminal") {
		t.Errorf("Output: got %q, error %v", out, err)
	}
}

// A writer that fails ends the program: the caller does not read its output any more.
func TestBrokenWriterEndsProgram(t *testing.T) {
	cmd := newSandbox(t).CommandContext(t.Context(), "yes")
	writeErr := errors.New("no more")
	cmd.Stdout = writerFunc(func([]byte) (int, error) { return 0, writeErr })
	if err := cmd.Run(); !errors.Is(err, writeErr) {
		t.Errorf("Run: error %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Output is passed on and not collected, however large it is.
func TestOutputIsNotBuffered(t *testing.T) {
	const size = 300 << 20
	cmd := newSandbox(t).Command("head", "-c", "314572800", "/dev/zero")
	var n int
	cmd.Stdout = writerFunc(func(p []byte) (int, error) { n += len(p); return len(p), nil })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := cmd.Run(); err != nil || n != size {
		t.Fatalf("Run: got %d bytes of output, want %d, error %v", n, size, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 64<<20 {
		t.Errorf("the heap grew by %d MB", grown>>20)
	}
}

// Commands that have ended hold no descriptors and no goroutines.
func TestCommandsLeaveNoDescriptorsOrGoroutines(t *testing.T) {
	sb := newSandbox(t)
	run := func() {
		cmd := sb.CommandContext(t.Context(), "cat")
		cmd.Stdin = strings.NewReader("x")
		if _, err := cmd.Output(); err != nil {
			t.Fatal(err)
		}
	}
	run()
	files, routines := len(hosttest.Descriptors(t, os.Getpid())), runtime.NumGoroutine()
	for range 20 {
		run()
	}
	// The number of idle connections may differ by a few.
	hosttest.EventuallyAtMost(t, "descriptors", files+6, func() int { return len(hosttest.Descriptors(t, os.Getpid())) })
	hosttest.EventuallyAtMost(t, "goroutines", routines+12, runtime.NumGoroutine)
}

package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/process"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestOutputAndExit(t *testing.T) {
	b := newTestService(t, nil)
	for _, c := range []struct {
		command, stdout, stderr, status, failure string
		code                                     int32
		exited                                   bool
	}{
		{"echo hi; echo bad >&2", "hi\n", "bad\n", "exit status 0", "", 0, true},
		{"exit 3", "", "", "exit status 3", "exit status 3", 3, true},
		{"kill -9 $$", "", "", "signal: killed", "signal: killed", -1, false},
	} {
		r := b.start(t, shell(c.command)).finish()
		if r.err != nil || r.stdout != c.stdout || r.stderr != c.stderr {
			t.Errorf("%s: got %+v, want stdout %q and stderr %q", c.command, r, c.stdout, c.stderr)
		}
		if r.end.GetStatus() != c.status || r.end.GetError() != c.failure || r.end.GetExitCode() != c.code || r.end.GetExited() != c.exited {
			t.Errorf("%s: got the end %v", c.command, r.end)
		}
	}
}

func TestEnvironment(t *testing.T) {
	b := newTestService(t, nil)
	req := shell(`echo "$PATH $HOME $USER $LOGNAME $SANDBOX $BOTH $MINE"`)
	req.Process.Envs = map[string]string{"BOTH": "request", "MINE": "x y"}
	r := b.start(t, req).finish()
	want := b.home + "/.local/bin:" + b.home + "/go/bin:" + b.home + "/.cargo/bin:/usr/local/bin:/usr/bin:/bin " + b.home + " user user yes request x y\n"
	if r.stdout != want {
		t.Errorf("environment: got %q, want %q", r.stdout, want)
	}
}

func TestWorkingDirectory(t *testing.T) {
	b := newTestService(t, nil)
	if err := os.Mkdir(filepath.Join(b.home, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for cwd, want := range map[string]string{"": b.home, "~": b.home, "sub": b.home + "/sub", "~/sub": b.home + "/sub", "/": "/"} {
		req := shell("pwd -P")
		req.Process.Cwd = &cwd
		if r := b.start(t, req).finish(); r.stdout != want+"\n" {
			t.Errorf("working directory for %q: got %q, want %q", cwd, r.stdout, want)
		}
	}
}

// startFails returns the error of a start that must fail.
func startFails(t *testing.T, b *testService, req *connect.Request[pb.StartRequest]) *connect.Error {
	t.Helper()
	in, err := b.Start(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if in.Receive() {
		t.Fatalf("got %v, want an error", in.Msg())
	}
	failure, ok := errors.AsType[*connect.Error](in.Err())
	if !ok {
		t.Fatalf("got %v, want a Connect error", in.Err())
	}
	return failure
}

func TestStartErrors(t *testing.T) {
	b := newTestService(t, nil)
	file := filepath.Join(b.home, "file")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := func(cmd, cwd string, args ...string) *pb.StartRequest {
		return &pb.StartRequest{Process: &pb.ProcessConfig{Cmd: cmd, Cwd: &cwd, Args: args}}
	}
	env := shell("true")
	env.Process.Envs = map[string]string{"A=B": "c"}
	for _, c := range []struct {
		name string
		req  *pb.StartRequest
		code connect.Code
		text string
	}{
		{"missing cwd", config("/bin/true", "/nope"), connect.CodeInvalidArgument, "cwd '/nope' does not exist"},
		{"cwd is a file", config("/bin/true", file), connect.CodeInvalidArgument, "cwd '" + file + "' cannot be entered: not a directory"},
		{"missing program", config("/bin/nope", ""), connect.CodeNotFound, "command '/bin/nope' not found"},
		{"missing name", config("no-such-command", ""), connect.CodeNotFound, "command 'no-such-command' not found"},
		{"not executable", config(file, ""), connect.CodePermissionDenied, "command '" + file + "' is not executable"},
		{"no command", config("", ""), connect.CodeInvalidArgument, "cmd is missing"},
		{"NUL in argument", config("/bin/echo", "", "a\x00b"), connect.CodeInvalidArgument, "command or arguments contain a NUL byte"},
		{"NUL in cwd", config("/bin/echo", "a\x00b"), connect.CodeInvalidArgument, "path contains a NUL byte"},
		{"bad variable", env, connect.CodeInvalidArgument, `invalid environment variable "A=B"`},
		{"too long", config("/bin/echo", "", strings.Repeat("x", 4<<20)), connect.CodeInvalidArgument, "arguments and environment are too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := startFails(t, b, connect.NewRequest(c.req))
			if got.Code() != c.code || got.Message() != c.text {
				t.Errorf("error of the start: got %v %q, want %v %q", got.Code(), got.Message(), c.code, c.text)
			}
		})
	}
}

func TestUnknownUser(t *testing.T) {
	b := newTestService(t, nil)
	req := connect.NewRequest(shell("true"))
	req.Header().Set("Authorization", basic("mallory"))
	got := startFails(t, b, req)
	if got.Code() != connect.CodeUnauthenticated || got.Message() != "invalid username: 'mallory'" {
		t.Errorf("start as an unknown user: got %v, want Unauthenticated", got)
	}
}

// The deadline of the call also ends the process group.
func TestTimeLimit(t *testing.T) {
	b := newTestService(t, nil)
	marker := filepath.Join(b.home, "pids")
	child := b.expire(t, "sleep 1000 & echo $! > "+marker+"; wait", marker)
	hosttest.Eventually(t, "the child has ended", func() bool { return !alive(child) })
}

// expire runs a command until its time limit ends it, and returns the PID that the command writes
// to a file.
func (b *testService) expire(t *testing.T, command, file string) (pid string) {
	t.Helper()
	// Repeat with a longer limit until the command has had time to write the PID.
	for limit := time.Second; pid == ""; limit *= 2 {
		if limit > hosttest.Patience(hosttest.Hang) {
			t.Fatal("the command did not write a PID")
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		s := b.startContext(ctx, t, connect.NewRequest(shell(command)))
		r := s.finish()
		cancel()
		if connect.CodeOf(r.err) != connect.CodeDeadlineExceeded {
			t.Fatalf("got %+v, want the end by the time limit", r)
		}
		output, _ := os.ReadFile(file) // it may not exist yet
		pid = strings.TrimSpace(string(output))
	}
	return pid
}

// alive reports whether a process exists and is not a zombie.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestCommandTimeoutIsTheDefault(t *testing.T) {
	b := newTestService(t, func(c *process.Config) { c.CommandTimeout = 100 * time.Millisecond })
	r := b.start(t, shell("sleep 1000")).finish()
	if connect.CodeOf(r.err) != connect.CodeDeadlineExceeded {
		t.Errorf("got %+v, want the end by the time limit", r)
	}
}

func TestDisconnectDoesNotKill(t *testing.T) {
	b := newTestService(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s := b.startContext(ctx, t, connect.NewRequest(shell("read line; echo got $line > done")))
	cancel()
	s.finish()
	input := &pb.ProcessInput{Input: &pb.ProcessInput_Stdin{Stdin: []byte("it\n")}}
	if _, err := b.SendInput(t.Context(), connect.NewRequest(&pb.SendInputRequest{Process: s.selector(), Input: input})); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the process continues", func() bool {
		got, err := os.ReadFile(filepath.Join(b.home, "done"))
		return err == nil && string(got) == "got it\n"
	})
}

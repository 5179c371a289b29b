package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// server is the server that a script started.
type server struct {
	cmd *exec.Cmd
	log *servetest.Output
}

// serve starts a server on a free port and sets the variables of its start block.
func serve(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(serverKey{}).(*server)
	if neg || s.cmd != nil {
		ts.Fatalf("usage: serve [flags], once")
	}
	s.log = &servetest.Output{}
	s.cmd = exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	s.cmd.Env = []string{
		"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"),
		"CRANNOG_STATE=" + ts.Getenv("CRANNOG_STATE"), "E2B_API_KEY=" + ts.Getenv("GIVEN_KEY"),
		// The default is no pool, because scripts count running sandboxes.
		"CRANNOG_POOL=" + cmp.Or(ts.Getenv("CRANNOG_POOL"), "off"),
	}
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "=")
		if ok && strings.HasPrefix(lines.Text(), "export ") {
			ts.Setenv(name, value)
		}
		if line := lines.Text(); strings.HasPrefix(line, "# console ") || strings.Contains(line, "web console") {
			ts.Setenv("CONSOLE_LINE", line)
		}
		if name == "E2B_API_KEY" {
			waitSocket(ts)
			return
		}
	}
	ts.Fatalf("no start block: %v\n%s", s.stop(os.Kill), s.log)
}

func waitSocket(ts *testscript.TestScript) {
	path := filepath.Join(ts.Getenv("CRANNOG_STATE"), "crannog.sock")
	for deadline := hosttest.Deadline(); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	ts.Fatalf("the server's socket did not appear")
}

func (s *server) stop(sig os.Signal) error {
	if s.cmd == nil {
		return nil
	}
	cmd := s.cmd
	s.cmd = nil
	if err := cmd.Process.Signal(sig); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-hosttest.Late():
		return errors.Join(fmt.Errorf("the server does not end after %v: %s", sig, s.log), cmd.Process.Kill())
	}
}

// stopServer ends the server, with a signal or gracefully.
func stopServer(ts *testscript.TestScript, neg bool, args []string) {
	s := ts.Value(serverKey{}).(*server)
	sig := os.Interrupt
	if len(args) == 1 && args[0] == "kill" {
		sig = os.Kill
	}
	err := s.stop(sig)
	if failed := err != nil; failed != neg && sig != os.Kill {
		ts.Fatalf("stop: %v\n%s", err, s.log)
	}
	if sig != os.Kill && strings.Contains(s.log.String(), "panic") {
		ts.Fatalf("the server's log contains a panic: %s", s.log)
	}
}

// signalCommand runs `crannog` with arguments, and sends one signal of the list each time it prints
// a line with "ready". Then it compares the exit code: signal INT,INT CODE args...
func signalCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: signal NAMES CODE args...")
	}
	names := map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	cmd := exec.Command(binary, args[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "CRANNOG_STATE=" + ts.Getenv("CRANNOG_STATE"), "HOME=" + ts.Getenv("HOME")}
	log := &servetest.Output{}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	lines := bufio.NewScanner(out)
	pending := strings.Split(args[0], ",")
	for lines.Scan() {
		// A program that survives a signal prints ready again, or is killed by the next signal.
		if strings.Contains(lines.Text(), "ready") && len(pending) > 0 {
			ts.Check(cmd.Process.Signal(names[pending[0]]))
			pending = pending[1:]
		}
	}
	err = cmd.Wait()
	code := cmd.ProcessState.ExitCode()
	if fmt.Sprint(code) != args[1] {
		ts.Fatalf("exit code %d (%v), want %s\n%s", code, err, args[1], log)
	}
}

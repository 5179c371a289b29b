// Package servetest owns running a real server in tests: it runs "crannog serve" with a new state
// directory, and inspects the server's resources on the machine.
package servetest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/testkit/programtest"
)

// Main is for a package's TestMain. It builds the real program once for all tests, stores its path
// in program, and runs the tests.
func Main(m *testing.M, program *string) int {
	dir, err := os.MkdirTemp("", "crannog-built-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if *program, err = programtest.Place(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Key is the key of a Server's clients.
const Key = "e2b_0123456789abcdef0123456789abcdef01234567"

// Server is a running crannog serve.
type Server struct {
	URL   string
	Key   string
	State string

	cmd    *exec.Cmd
	stderr Output
}

// Start starts a server on a state directory and reads the lines that it prints at its start. The
// flags follow those of Start. At the end of the test, the server is killed and its remaining
// sandboxes are removed.
func Start(t testing.TB, program, state string, flags ...string) *Server {
	t.Helper()
	t.Cleanup(func() {
		// Remaining sandboxes would slow down later tests.
		out, err := exec.Command(program, "rm", "--all", "--yes", "--quiet", "--state", state).CombinedOutput()
		if err != nil {
			t.Errorf("remove the remaining sandboxes: %v: %s", err, out)
		}
	})
	return StartOnly(t, program, state, flags...)
}

// StartOnly is Start without the removal of sandboxes at the end, for a state directory that
// another version of the program uses next.
func StartOnly(t testing.TB, program, state string, flags ...string) *Server {
	t.Helper()
	s := &Server{State: state}
	s.cmd = exec.Command(program, append([]string{"serve", "--listen", "127.0.0.1:0", "--state", state, "--key", Key,
		"--pool", "off"}, flags...)...) // warm sandboxes would count as left behind
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		if v, ok := strings.CutPrefix(line, "E2B_API_URL="); ok {
			s.URL = v
		}
		if v, ok := strings.CutPrefix(line, "E2B_API_KEY="); ok {
			s.Key = v
			go io.Copy(io.Discard, out)
			return s
		}
	}
	t.Fatalf("the server did not start: %s", s.Stderr())
	return nil
}

// PID returns the server's process ID.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stderr returns what the server has written to standard error so far.
func (s *Server) Stderr() string { return s.stderr.String() }

// Kill kills the server. It may be called twice.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Stop ends the server with SIGTERM, as an operator does.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v: %s", err, s.Stderr())
	}
}

// Client returns a client with the server's key.
func (s *Server) Client(t testing.TB) *crannog.Client {
	t.Helper()
	return s.client(t, crannog.URL(s.URL), crannog.Key(s.Key))
}

// Local returns a client of the user that runs the server, connected through the server's socket.
func (s *Server) Local(t testing.TB) *crannog.Client {
	t.Helper()
	return s.client(t, crannog.Socket(filepath.Join(s.State, "crannog.sock")))
}

func (s *Server) client(t testing.TB, options ...crannog.Option) *crannog.Client {
	t.Helper()
	c, err := crannog.New(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// CausewayPID returns the process ID of a state directory's egress gateway.
func CausewayPID(t testing.TB, state string) int {
	t.Helper()
	c, err := gateway.Connect(t.Context(), state, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Info().PID
}

// Output collects the output of a process, also while it is read. The zero value is ready for use.
type Output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

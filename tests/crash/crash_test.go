// Package crash_test ends servers and engines without warning and looks at
// what is left.
package crash_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/hosttest"
)

var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the program once; every test runs the real one.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "crannog-crash-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "crannog")
	build := exec.Command("go", "build", "-o", program, "../../cmd/crannog")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// server is a running crannog serve.
type server struct {
	cmd    *exec.Cmd
	url    string
	key    string
	stderr *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

const testKey = "e2b_0123456789abcdef0123456789abcdef01234567"

// serve starts a server on a state directory and reads its start block.
func serve(t *testing.T, binary, state string) *server {
	t.Helper()
	s := &server{stderr: &lockedBuffer{}}
	s.cmd = exec.Command(binary, "serve", "--listen", "127.0.0.1:0", "--state", state, "--key", testKey)
	s.cmd.Stderr = s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.kill() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		if v, ok := strings.CutPrefix(line, "E2B_API_URL="); ok {
			s.url = v
		}
		if v, ok := strings.CutPrefix(line, "E2B_API_KEY="); ok {
			s.key = v
			go io.Copy(io.Discard, out)
			return s
		}
	}
	t.Fatalf("the server did not start: %s", s.stderr)
	return nil
}

func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *server) client(t *testing.T) *crannog.Client {
	t.Helper()
	c, err := crannog.New(crannog.URL(s.url), crannog.Key(s.key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func output(t *testing.T, sb *crannog.Sandbox, line string) string {
	t.Helper()
	out, err := sb.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// gvisorProcesses counts what runs for boxes below a state directory: the
// arguments of gVisor's processes name it.
func gvisorProcesses(t *testing.T, state string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.HasPrefix(string(line), "runsc-") && strings.Contains(string(line), state) || strings.HasPrefix(string(line), "crannog-boot") {
			n++
		}
	}
	return n
}

// nothingLeft waits until no process, group or directory of a box is left.
func nothingLeft(t *testing.T, state string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		boxes, _ := filepath.Glob(filepath.Join(state, "run", "[a-z0-9]*"))
		sockets, _ := filepath.Glob(filepath.Join(state, "run", ".runsc", "*.sock"))
		n := gvisorProcesses(t, state)
		if n == 0 && len(boxes) == 0 && len(sockets) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %d processes, %v, %v", n, boxes, sockets)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// P7: a server that was killed with 20 boxes finds all of them again, under
// the same tokens, with what they hold; and the server may be another build.
func TestKilledServerAdoptsItsBoxes(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	first := serve(t, program, state)
	client := first.client(t)
	var ids []string
	var tokens []string
	for i := range 20 {
		sb, err := client.Create(t.Context(), crannog.Timeout(10*time.Minute), crannog.Metadata(map[string]string{"n": fmt.Sprint(i)}))
		if err != nil {
			t.Fatal(err)
		}
		output(t, sb, fmt.Sprintf("echo %d > /tmp/n; (sleep 600 > /dev/null 2>&1 &)", i))
		ids, tokens = append(ids, sb.ID()), append(tokens, sb.Info().AccessToken)
	}
	first.kill()

	// An upgrade replaces the program's file under running boxes.
	upgraded := filepath.Join(filepath.Dir(program), "crannog-upgraded")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(upgraded, append(data, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	second := serve(t, upgraded, state)
	client = second.client(t)
	for i, id := range ids {
		sb, err := client.Get(t.Context(), id)
		if err != nil {
			t.Fatalf("box %d: %v", i, err)
		}
		if sb.Info().AccessToken != tokens[i] {
			t.Errorf("box %d has another token", i)
		}
		if got := output(t, sb, "cat /tmp/n; pgrep -c sleep"); got != fmt.Sprintf("%d\n1", i) {
			t.Errorf("box %d: %q", i, got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, state)
	second.stop(t)
}

// stop ends the server as an operator does.
func (s *server) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v: %s", err, s.stderr)
	}
}

// P7: what expired while no server ran is gone after the next start.
func TestExpiredWhileNobodyWatched(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	first := serve(t, program, state)
	if _, err := first.client(t).Create(t.Context(), crannog.Timeout(2*time.Second)); err != nil {
		t.Fatal(err)
	}
	first.kill()
	// The guest ends the box by its own clock, without any server.
	deadline := time.Now().Add(30 * time.Second)
	for gvisorProcesses(t, state) > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the box outlived its end")
		}
		time.Sleep(50 * time.Millisecond)
	}
	second := serve(t, program, state)
	nothingLeft(t, state)
	second.stop(t)
}

// P8: a server that is killed at any moment of a creation leaves nothing that
// the next start does not remove.
func TestKilledWhileCreating(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	for i := range 12 {
		s := serve(t, program, state)
		client := s.client(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				// It fails or succeeds as the kill wants it.
				_, _ = client.Create(ctx, crannog.Timeout(time.Second))
			})
		}
		time.Sleep(time.Duration(i) * 15 * time.Millisecond) // another moment of the creation each time
		s.kill()
		cancel()
		wg.Wait()
	}
	last := serve(t, program, state)
	deadline := time.Now().Add(20 * time.Second)
	for {
		list, err := last.client(t).List(t.Context(), crannog.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("listed after all ends: %+v", list)
		}
		time.Sleep(50 * time.Millisecond)
	}
	nothingLeft(t, state)
	last.stop(t)
}

// P8: an ephemeral box does not outlive the command that made it, even if
// that is killed.
func TestKilledRun(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	cmd := exec.Command(program, "run", "--state", state, "--no-workspace", "--", "sh", "-c", "echo up; sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "up\n" {
		t.Fatalf("%q %v", line, err)
	}
	if gvisorProcesses(t, state) == 0 {
		t.Fatal("control: no box was running")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if out, err := exec.Command(program, "prune", "--state", state, "-y").CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	nothingLeft(t, state)
}

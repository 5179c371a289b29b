// Package crash_test kills servers and engines without warning and checks what is left.
package crash_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// output runs a shell line that must succeed, and returns its output.
func output(t *testing.T, sb *crannog.Sandbox, line string) string {
	t.Helper()
	out, err := sb.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v %s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// P7: after a server with 20 sandboxes was killed, the next one finds all of them, with the same
// tokens and content, even if it is another build.
func TestNextServerAdoptsSandboxes(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	first := servetest.Start(t, program, state)
	client := first.Client(t)
	var ids []string
	var tokens []string
	for i := range 20 {
		sb, err := client.Create(t.Context(), crannog.Timeout(life), crannog.Metadata(map[string]string{"n": fmt.Sprint(i)}))
		if err != nil {
			t.Fatal(err)
		}
		output(t, sb, fmt.Sprintf("echo %d > /tmp/n; (sleep 600 > /dev/null 2>&1 &)", i))
		ids, tokens = append(ids, sb.ID()), append(tokens, sb.Info().AccessToken)
	}
	first.Kill()

	// An upgrade replaces the program's file while sandboxes run.
	upgraded := filepath.Join(filepath.Dir(program), "crannog-upgraded")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(upgraded, append(data, 0), 0o755); err != nil {
		t.Fatal(err)
	}
	second := servetest.Start(t, upgraded, state)
	client = second.Client(t)
	for i, id := range ids {
		sb, err := client.Get(t.Context(), id)
		if err != nil {
			t.Fatalf("sandbox %d: %v", i, err)
		}
		if sb.Info().AccessToken != tokens[i] {
			t.Errorf("sandbox %d has another token", i)
		}
		if got := output(t, sb, "cat /tmp/n; pgrep -c sleep"); got != fmt.Sprintf("%d\n1", i) {
			t.Errorf("sandbox %d: %q", i, got)
		}
		if err := sb.Kill(t.Context()); err != nil {
			t.Error(err)
		}
	}
	servetest.NothingLeft(t, state)
	second.Stop(t)
}

// P7: a sandbox that expires while no server runs is gone after the next start.
func TestSandboxExpiresWithoutServer(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	// The sandbox must expire after the kill. If the kill was too slow, the next sandbox gets more
	// time.
	for lifetime := 2 * time.Second; ; lifetime *= 2 {
		first := servetest.Start(t, program, state)
		sb, err := first.Client(t).Create(t.Context(), crannog.Timeout(life))
		if err != nil {
			t.Fatal(err)
		}
		if err := sb.SetTimeout(t.Context(), lifetime); err != nil {
			t.Fatal(err)
		}
		first.Kill()
		if servetest.Processes(t, state) > 0 {
			break
		}
		if lifetime > hosttest.Patience(time.Minute) {
			t.Fatal("control: the sandbox ended before its server")
		}
	}
	// The guest ends the sandbox by its own clock, without any server.
	hosttest.Eventually(t, "the sandbox has ended", func() bool { return servetest.Processes(t, state) == 0 })
	second := servetest.Start(t, program, state)
	servetest.NothingLeft(t, state)
	second.Stop(t)
}

// P8: if a server is killed at any moment of a creation, the next one removes what it left.
func TestKillDuringCreateLeavesNothing(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := t.TempDir()
	for i := range 12 {
		s := servetest.Start(t, program, state)
		client := s.Client(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				// The creation fails or succeeds, depending on the kill.
				_, _ = client.Create(ctx, crannog.Timeout(time.Second))
			})
		}
		time.Sleep(time.Duration(i) * 15 * time.Millisecond) // kills at another moment of the creation each time
		s.Kill()
		cancel()
		wg.Wait()
	}
	last := servetest.Start(t, program, state)
	hosttest.EventuallyNoError(t, func() error {
		list, err := last.Client(t).List(t.Context(), crannog.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			return fmt.Errorf("sandboxes are listed after they have ended: %+v", list)
		}
		return nil
	})
	servetest.NothingLeft(t, state)
	last.Stop(t)
}

// P8: an ephemeral sandbox does not outlive the command that created it, even if that command is
// killed.
func TestKilledRunLeavesNothing(t *testing.T) {
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
		t.Fatalf("start the sandbox: got %q, %v, want up", line, err)
	}
	if servetest.Processes(t, state) == 0 {
		t.Fatal("control: no sandbox was running")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if out, err := exec.Command(program, "prune", "--state", state, "-y").CombinedOutput(); err != nil {
		t.Fatalf("prune: %v %s", err, out)
	}
	servetest.NothingLeft(t, state)
}

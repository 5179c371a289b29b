package crash_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// TestRunKilledAtEndLeavesNoPartialState kills a run at several moments of its end. The run leaves
// its changes and its output, one of them, or nothing. Whatever is left is complete, and the next
// command finds or removes it.
func TestRunKilledAtEndLeavesNoPartialState(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	outcomes := map[string]int{}
	// The last run is not killed.
	const moments, step = 14, 10 * time.Millisecond
	for i := range moments {
		state, host := t.TempDir(), t.TempDir()
		call := func(args ...string) (string, error) {
			cmd := exec.Command(program, append(args, "--state", state)...)
			cmd.Dir, cmd.Stderr = host, t.Output()
			out, err := cmd.Output()
			return string(out), err
		}
		if err := os.WriteFile(filepath.Join(host, "a"), []byte("one\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "run", "--state", state, "--", "sh", "-c", "echo two >> a; echo printed")
		cmd.Dir = host
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "printed\n" {
			t.Fatalf("start the run: got %q, %v, want printed", line, err)
		}
		if i < moments-1 {
			time.Sleep(time.Duration(i) * step) // kills each run at another moment
			_ = cmd.Process.Kill()
		}
		_ = cmd.Wait()

		outcome := ""
		if text, err := call("diff", "@last", "--json"); err == nil {
			var set struct{ Files, Added int }
			if err := json.Unmarshal([]byte(text), &set); err != nil || set.Files != 1 || set.Added != 1 {
				t.Errorf("the changes of the run: got %s, %v, want 1 file with 1 added line", text, err)
			}
			outcome += "changes "
		}
		if text, err := call("logs", "@last", "--replay"); err == nil {
			if text != "printed\n" {
				t.Errorf("replayed %q", text)
			}
			outcome += "recordings"
		}
		outcomes[outcome]++
		servetest.NothingLeft(t, state)
		for dir, has := range map[string]bool{"changes": strings.Contains(outcome, "changes"), "manifests": strings.Contains(outcome, "changes"), "recordings": strings.Contains(outcome, "recordings")} {
			entries, err := os.ReadDir(filepath.Join(state, dir))
			if err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
			n := 0
			for _, e := range entries {
				if e.Name() != "spent" {
					n++
				}
			}
			if has != (n == 1) || n > 1 {
				t.Errorf("run %d left %q, but %d entries in %s", i, outcome, n, dir)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Log(outcomes)
	if outcomes["changes recordings"] == 0 {
		t.Errorf("control: no run kept its changes and recordings: %v", outcomes)
	}
}

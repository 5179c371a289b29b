package gvisortest_test

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/gvisor/gvisortest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// startBootProcess starts a process with the name of a child that boots a sandbox, and returns its
// PID. The parent is a shell with a state directory in its environment, which waits for the process
// or ends at once.
func startBootProcess(t *testing.T, dir string, waits bool) (pid string) {
	t.Helper()
	script := `exec 3<&0; bash -c 'exec -a crannog-boot cat' <&3 >/dev/null & echo $!; exec >&-; `
	if waits {
		script += "wait"
	}
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Env = append(os.Environ(), "CRANNOG_STATE="+dir)
	hold, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	shell.Stdin = hold
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	hold.Close()
	t.Cleanup(func() {
		end.Close() // the end of input ends cat
		_ = shell.Wait()
	})
	number, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	if !waits {
		if err := shell.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	pid = strings.TrimSpace(string(number))
	// The process has its new name as soon as it is no longer a shell.
	for {
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		if string(line) == "crannog-boot\x00" {
			return pid
		}
	}
}

// A booting child of another state directory is not listed, because tests of other packages start
// sandboxes at the same time.
func TestBootProcessBelongsToItsParent(t *testing.T) {
	hosttest.Need(t, hosttest.Bash)
	dir := t.TempDir()
	ours, other, orphan := startBootProcess(t, dir, true), startBootProcess(t, t.TempDir()+"-other", true), startBootProcess(t, t.TempDir(), false)
	found := gvisortest.Processes(t, dir)
	if !slices.Contains(found, ours) || slices.Contains(found, other) || !slices.Contains(found, orphan) {
		t.Errorf("found %q; want our process %s and the orphan %s, not %s", found, ours, orphan, other)
	}
}

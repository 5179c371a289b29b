// Package upgrade_test creates a state directory with the program of an earlier version and opens
// it with this one. Everything that was running, paused, saved, encrypted, requested and logged
// must be unchanged.
package upgrade_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/programtest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// program is the path of this version, and earlier that of the earlier one.
var program, earlier string

// TestMain builds the programs before the tests enter their own network namespace, which reaches no
// module proxy. Every test here needs root.
func TestMain(m *testing.M) {
	if earlier = os.Getenv(outsideEnv); earlier != "" {
		os.Exit(servetest.Main(m, &program))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(buildAndRun())
}

// buildAndRun builds both programs and runs the tests in new namespaces.
func buildAndRun() int {
	dir, err := os.MkdirTemp("", "crannog-built-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("./earlier.sh")
	cmd.Stderr = os.Stderr
	old, err := cmd.Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the earlier version:", err)
		return 1
	}
	built, err := programtest.Place(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return inNamespaces(strings.TrimSpace(string(old)), built)
}

// life is the timeout of a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

// command runs a program's command on a state directory.
func command(t *testing.T, program, state, dir string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"--state", state}, args...)...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is like command, but fails the test if the command does.
func must(t *testing.T, program, state, dir string, args ...string) string {
	t.Helper()
	stdout, stderr, err := command(t, program, state, dir, args...)
	if err != nil {
		t.Fatalf("crannog %q: %v\n%s%s", args, err, stdout, stderr)
	}
	return stdout
}

// output returns what a shell inside prints.
func output(t *testing.T, sb *crannog.Sandbox, line string) string {
	t.Helper()
	out, err := sb.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %s: %v %s", sb.ID(), line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Package upgrade_test makes a state directory with the program of an earlier version and opens it
// with this one: everything that was running, paused, saved, sealed, asked and recorded is
// unchanged.
package upgrade_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// program is this version.
var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// life only ends a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

// earlier returns the program of the earlier version, which is built if it does not exist yet.
func earlier(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./earlier.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build the earlier version: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// command runs a command line of a program on a state directory.
func command(t *testing.T, program, state, dir string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"--state", state}, args...)...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// must is command, which must not fail.
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

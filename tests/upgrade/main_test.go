// Package upgrade_test makes a state directory with the program of an earlier version and opens it
// with this one: everything that was running, paused, saved, sealed, asked and recorded is
// unchanged.
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

// program is this version, earlier the earlier one.
var program, earlier string

// TestMain needs root, as every test here does. The programs are built before the tests have a
// network of their own, from which no source of modules is reached.
func TestMain(m *testing.M) {
	if earlier = os.Getenv(outsideEnv); earlier != "" {
		os.Exit(servetest.Main(m, &program))
	}
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(outside())
}

func outside() int {
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

// life only ends a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

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

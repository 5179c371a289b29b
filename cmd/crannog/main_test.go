package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/crannog/crannog/internal/engine/jail"
	jailed "github.com/crannog/crannog/internal/engine/jail/setup"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/programtest"
)

// binary is the real program. It is built once, because the test program cannot replace it: an
// engine starts its own program again in several roles.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "crannog-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		// Users of a sandbox are other users on the host, and must be able to run the guest's
		// program.
		if err := os.Chmod(dir, 0o755); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if binary, err = programtest.Place(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

func TestScripts(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	runScripts(t, "script")
}

// TestLongScripts runs scripts that check a whole list of cases where one of TestScripts checks a
// few.
func TestLongScripts(t *testing.T) {
	if !hosttest.Full() {
		t.Skip("the long scripts run only with CRANNOG_TEST_FULL=1: make test-long")
	}
	hosttest.Need(t, hosttest.Root, hosttest.Python, hosttest.Bash)
	runScripts(t, "long")
}

// runScripts runs the scripts of a directory of testdata.
func runScripts(t *testing.T, dir string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:   filepath.Join("testdata", dir),
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serve, "stopserver": stopServer, "signal": signalCommand, "nosandboxes": noSandboxes, "makeimage": makeImage, "makefeature": makeFeature, "referrers": saveReferrers, "buildmodule": buildModule, "nosecret": noSecret, "longer": longer,
		},
		RequireUniqueNames: true,
	})
}

// stateKey and serverKey are the keys of a script's own values: its state directory and its server.
type (
	stateKey  struct{}
	serverKey struct{}
)

// setup gives each script a state directory with a short path, because a socket's path has at most
// 107 bytes.
func setup(env *testscript.Env) error {
	state, err := os.MkdirTemp("", "cs")
	if err != nil {
		return err
	}
	env.Values[stateKey{}] = state
	env.Values[serverKey{}] = &server{}
	env.Setenv("CRANNOG_STATE", state)
	env.Setenv("PATH", filepath.Dir(binary)+":"+os.Getenv("PATH"))
	env.Setenv("HOME", "/nonexistent-home")
	env.Setenv("LANG", "C.UTF-8")
	env.Setenv("TERM", "xterm")
	env.Setenv("SLOWNESS", fmt.Sprint(hosttest.Slowness()))
	env.Defer(func() {
		s := env.Values[serverKey{}].(*server)
		if err := s.stop(os.Interrupt); err != nil {
			env.T().Log("server: ", err)
		}
		clean(env, state)
	})
	return nil
}

// clean removes the sandboxes and files of a script, and fails the script if any of them remain.
func clean(env *testscript.Env, state string) {
	ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	rm := exec.CommandContext(ctx, binary, "rm", "-a", "-y", "--state", state)
	if out, err := rm.CombinedOutput(); err != nil {
		env.T().Log("clean: ", err, string(out))
	}
	if left := sandboxProcesses(state); len(left) > 0 {
		env.T().Log("left running: ", left)
		env.T().FailNow()
	}
	if err := os.RemoveAll(state); err != nil {
		env.T().Log("clean: ", err)
		env.T().FailNow()
	}
}

// sandboxProcesses returns the command lines of the processes that belong to sandboxes of a state
// directory. It waits until there are none, or until the deadline.
func sandboxProcesses(state string) []string {
	var found []string
	prefix := jailed.Arg0 + "\x00" + jail.Tag(filepath.Join(state, "jail")) + "-"
	for deadline := hosttest.Deadline(); ; time.Sleep(20 * time.Millisecond) {
		found = nil
		files, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return []string{err.Error()}
		}
		for _, f := range files {
			line, err := os.ReadFile(f)
			if err == nil && (bytes.Contains(line, []byte(state+"/run/")) || bytes.HasPrefix(line, []byte(prefix))) {
				found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
			}
		}
		if len(found) == 0 || time.Now().After(deadline) {
			return found
		}
	}
}

// noSandboxes fails if a sandbox of this script still runs: nosandboxes.
func noSandboxes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: nosandboxes")
	}
	if left := sandboxProcesses(ts.Getenv("CRANNOG_STATE")); len(left) > 0 {
		ts.Fatalf("left running: %s", left)
	}
}

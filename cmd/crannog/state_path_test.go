package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// stateNames are names of state directories with special characters: gVisor splits settings at
// commas and colons, SQLite may parse the name as a URL, flags contain an equals sign, and tables
// are split at newlines and spaces.
var stateNames = []string{"a,b", "a:b", "k=v", "with space", "new\nline\ttab", "Grüße-日本", "per%41cent?x=y#z", `quo"te'\$HOME`, "-n"}

// stateIn creates a state directory with a name, below a directory with a short path.
func stateIn(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(hosttest.ShortDir(t), name)
}

// runProgram runs the program on a state directory. No output may look like a crash.
func runProgram(t *testing.T, state string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var outText, errText strings.Builder
	cmd := exec.Command(binary, args...) // without t.Context, because cleanups use it too
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &outText, &errText
	cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state, "HOME=/nonexistent-home")
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("crannog %q: %v", args, err)
	}
	if strings.Contains(errText.String(), "goroutine ") || strings.Contains(errText.String(), "panic") {
		t.Errorf("crannog %q on %q: %s", args, state, errText.String())
	}
	return outText.String(), errText.String(), cmd.ProcessState.ExitCode()
}

// TestStateDirectoryMayHaveAnyName runs a sandbox below each of stateNames.
func TestStateDirectoryMayHaveAnyName(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	for _, name := range stateNames {
		t.Run(name, func(t *testing.T) {
			state := stateIn(t, name)
			out, stderr, code := runProgram(t, state, "run", "--", "python3", "-c", "print(6*7)")
			if out != "42\n" || code != 0 {
				t.Errorf("run: %q, exit %d: %s", out, code, stderr)
			}
			servetest.NothingLeft(t, state)
		})
	}
}

// TestStateDirectoryWithSpecialCharacters checks everything that stores files in the state
// directory: attachments, snapshots, the server with its socket, and doctor.
func TestStateDirectoryWithSpecialCharacters(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := stateIn(t, "a,b:c=d e\nexport INJECTED=1\nf%41?g#é'\"")
	run := func(want string, args ...string) string {
		t.Helper()
		out, stderr, code := runProgram(t, state, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("crannog %q: exit %d: %q %s", args, code, out, stderr)
		}
		return out
	}
	t.Cleanup(func() {
		run("", "rm", "--all", "--yes", "--quiet")
		servetest.NothingLeft(t, state)
	})
	run("eth0", "run", "--allow", "a.test", "--", "cat", "/proc/net/dev")
	run("", "run", "-d", "--name", "first", "--no-workspace", "--", "sleep", "300")
	run("", "exec", "first", "--", "sh", "-c", "echo kept > /tmp/x")
	run("", "snapshot", "first", "--name", "good")
	run("kept", "run", "--from", "good", "--", "cat", "/tmp/x")
	out, stderr, code := runProgram(t, state, "doctor")
	if code != 0 || !strings.Contains(out, "ok    engine") || !strings.Contains(out, "ok    state directory") {
		t.Errorf("doctor: exit %d: %s%s", code, out, stderr)
	}
	for _, line := range startBlock(t, state) {
		if strings.Contains(line, "INJECTED") && !strings.HasPrefix(line, "#") {
			t.Errorf("a shell that reads the start block would execute %q", line)
		}
	}
	s := servetest.Start(t, binary, state)
	if out := run("kept", "exec", "first", "--", "cat", "/tmp/x"); out != "kept\n" {
		t.Errorf("exec through the server printed %q, want %q", out, "kept\n")
	}
	s.Stop(t)
}

// startBlock starts a server, reads the lines that it prints when it starts, and stops it.
func startBlock(t *testing.T, state string) (lines []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "serve", "--listen", "127.0.0.1:0", "--pool", "off", "--state", state)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for scan := bufio.NewScanner(out); scan.Scan(); {
		lines = append(lines, scan.Text())
		if strings.HasPrefix(scan.Text(), "export E2B_API_KEY=") {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || len(lines) < 4 {
		t.Errorf("serve: %v, %q", err, lines)
	}
	return lines
}

// TestUnusableStateDirectoryIsRejected checks that commands that run sandboxes, the server and
// doctor reject an unusable path, with the reason and a remedy. A path of exactly the maximal
// length works.
func TestUnusableStateDirectoryIsRejected(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	const maxLength = 107 - len("/crannog.sock")
	top := stateIn(t, "")
	long := func(n int) string { return filepath.Join(top, strings.Repeat("x", n-len(top)-1)) }
	for _, c := range []struct{ state, why string }{
		{long(maxLength + 1), "too long"},
		{filepath.Join(top, strings.Repeat("deep/", 60)), "too long"},
		{top + "/latin1-\xe9", "not UTF-8"},
		{"relative/path", "not an absolute path"},
	} {
		for _, args := range [][]string{{"run", "--", "true"}, {"serve", "--listen", "127.0.0.1:0"}, {"doctor"}} {
			out, stderr, code := runProgram(t, c.state, args...)
			want := 2
			if args[0] == "run" {
				want = 125
			}
			if code != want || out != "" {
				t.Errorf("%s on %q: exit %d: %s", args[0], c.state, code, out)
			}
			for _, part := range []string{"error: cannot use the settings", "cause: state: ", c.why, "hint: ", "code=invalid_settings"} {
				if !strings.Contains(stderr, part) {
					t.Errorf("%s on %q does not say %q: %s", args[0], c.state, part, stderr)
				}
			}
		}
	}
	if out, stderr, code := runProgram(t, long(maxLength), "run", "--", "echo", "fits"); out != "fits\n" || code != 0 {
		t.Errorf("%d bytes: %q, exit %d: %s", maxLength, out, code, stderr)
	}
}

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

// stateNames are names of state directories with characters that have a meaning elsewhere: gVisor
// splits settings at commas and colons, SQLite may take the name for a URL, flags have an equals
// sign, tables have lines and spaces.
var stateNames = []string{"a,b", "a:b", "k=v", "with space", "new\nline\ttab", "Grüße-日本", "per%41cent?x=y#z", `quo"te'\$HOME`, "-n"}

// stateIn creates a state directory with a name, below a directory with a short path.
func stateIn(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(hosttest.ShortDir(t), name)
}

// runProgram runs the program on a state directory. No output may look like a crash.
func runProgram(t *testing.T, state string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, said strings.Builder
	cmd := exec.Command(binary, args...) // also runs after the test
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &said
	cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state, "HOME=/nonexistent-home")
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatalf("crannog %q: %v", args, err)
	}
	if strings.Contains(said.String(), "goroutine ") || strings.Contains(said.String(), "panic") {
		t.Errorf("crannog %q on %q: %s", args, state, said.String())
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode()
}

// Sandboxes start with any name of the state directory.
func TestStateDirectoryMayHaveAnyName(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	for _, name := range stateNames {
		t.Run(name, func(t *testing.T) {
			state := stateIn(t, name)
			out, said, code := runProgram(t, state, "run", "--", "python3", "-c", "print(6*7)")
			if out != "42\n" || code != 0 {
				t.Errorf("run: %q, exit %d: %s", out, code, said)
			}
			servetest.NothingLeft(t, state)
		})
	}
}

// Everything that stores files in the state directory works there too: attachments, snapshots, the
// server with its socket, and doctor.
func TestStateDirectoryWithAllMarks(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	state := stateIn(t, "a,b:c=d e\nexport INJECTED=1\nf%41?g#é'\"")
	must := func(want string, args ...string) string {
		t.Helper()
		out, said, code := runProgram(t, state, args...)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("crannog %q: exit %d: %q %s", args, code, out, said)
		}
		return out
	}
	t.Cleanup(func() {
		must("", "rm", "--all", "--yes", "--quiet")
		servetest.NothingLeft(t, state)
	})
	must("eth0", "run", "--allow", "a.test", "--", "cat", "/proc/net/dev")
	must("", "run", "-d", "--name", "first", "--no-workspace", "--", "sleep", "300")
	must("", "exec", "first", "--", "sh", "-c", "echo kept > /tmp/x")
	must("", "snapshot", "first", "--name", "good")
	must("kept", "run", "--from", "good", "--", "cat", "/tmp/x")
	out, said, code := runProgram(t, state, "doctor")
	if code != 0 || !strings.Contains(out, "ok    engine") || !strings.Contains(out, "ok    state directory") {
		t.Errorf("doctor: exit %d: %s%s", code, out, said)
	}
	for _, line := range startBlock(t, state) {
		if strings.Contains(line, "INJECTED") && !strings.HasPrefix(line, "#") {
			t.Errorf("a shell that reads the start block would carry out %q", line)
		}
	}
	s := servetest.Start(t, binary, state)
	if out := must("kept", "exec", "first", "--", "cat", "/tmp/x"); out != "kept\n" {
		t.Errorf("through the server: %q", out)
	}
	s.Stop(t)
}

// startBlock is the output of a server before it serves.
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

// A path that cannot work is refused with the reason and a remedy, by commands that run sandboxes,
// by the server, and by doctor. A path of exactly the maximal length works.
func TestStateDirectoryThatCannotWork(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	const room = 107 - len("/crannog.sock")
	top := stateIn(t, "")
	long := func(n int) string { return filepath.Join(top, strings.Repeat("x", n-len(top)-1)) }
	for _, c := range []struct{ state, why string }{
		{long(room + 1), "too long"},
		{filepath.Join(top, strings.Repeat("deep/", 60)), "too long"},
		{top + "/latin1-\xe9", "not UTF-8"},
		{"relative/path", "not an absolute path"},
	} {
		for _, args := range [][]string{{"run", "--", "true"}, {"serve", "--listen", "127.0.0.1:0"}, {"doctor"}} {
			out, said, code := runProgram(t, c.state, args...)
			want := 2
			if args[0] == "run" {
				want = 125
			}
			if code != want || out != "" {
				t.Errorf("%s on %q: exit %d: %s", args[0], c.state, code, out)
			}
			for _, part := range []string{"error: cannot use the settings", "cause: state: ", c.why, "hint: ", "code=invalid_settings"} {
				if !strings.Contains(said, part) {
					t.Errorf("%s on %q does not say %q: %s", args[0], c.state, part, said)
				}
			}
		}
	}
	if out, said, code := runProgram(t, long(room), "run", "--", "echo", "fits"); out != "fits\n" || code != 0 {
		t.Errorf("%d bytes: %q, exit %d: %s", room, out, code, said)
	}
}

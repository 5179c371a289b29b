package interpreter

import (
	"os/exec"
	"strings"
	"testing"
)

// bash runs bash code.
func (b *testServer) bash(code string) outcome {
	b.t.Helper()
	return b.run(payload{"code": code, "language": "bash"})
}

func TestBashKeepsState(t *testing.T) {
	b := newTestServer(t)
	b.bash("x=5; f() { echo f$1; }; cd /tmp; alias hi='echo hello'; arr=(a b)").wantOK(t)
	o := b.bash("f $x\nhi; pwd; echo ${arr[1]} 'it'\"'\"'s' ü \\\\; cat; echo err >&2").wantOK(t)
	if want := "f5\nhello\n/tmp\nb it's ü \\\n"; o.stdout != want || o.stderr != "err\n" || o.count != 2 {
		t.Errorf("stdout %q, stderr %q, count %d", o.stdout, o.stderr, o.count)
	}
}

func TestBashReportsExitStatus(t *testing.T) {
	b := newTestServer(t)
	for code, want := range map[string]string{
		"false": "exit status 1", "(exit 7)": "exit status 7", "no-such-program": "exit status 127",
		"echo 'open": "exit status 2", "for": "exit status 2", "if true; then": "exit status 2",
		"exit 3": "exit status 3", "exec sh -c 'echo bye; exit 4'": "exit status 4", "set -e; false": "exit status 1",
	} {
		o := b.bash(code)
		if o.err == nil || o.err.Name != "ExitError" || o.err.Value != want {
			t.Errorf("error of %q: got %+v, want %s", code, o.lines, want)
		}
		if o := b.bash("echo alive").wantOK(t); o.stdout != "alive\n" {
			t.Errorf("execution after %q: got %+v", code, o.lines)
		}
	}
	if o := b.bash("kill -9 $$"); o.err == nil || o.err.Name != "UnexpectedEndOfExecution" {
		t.Errorf("kill -9: got %+v, want UnexpectedEndOfExecution", o.lines)
	}
}

func TestBashSetsVariablesForOneExecution(t *testing.T) {
	b := newTestServer(t)
	b.bash("export A=old; B=local").wantOK(t)
	o := b.run(payload{"language": "bash", "code": "echo $A $B $C; env | grep -c '^[ABC]='",
		"env_vars": map[string]string{"A": "it's", "B": "b\n2", "C": "c"}}).wantOK(t)
	if o.stdout != "it's b 2 c\n3\n" {
		t.Errorf("execution with variables: got stdout %q, stderr %q", o.stdout, o.stderr)
	}
	o = b.bash("echo $A $B ${C-unset}; env | grep '^[ABC]='").wantOK(t)
	if o.stdout != "old local unset\nA=old\n" {
		t.Errorf("next execution: stdout %q, stderr %q", o.stdout, o.stderr)
	}
}

func TestBashHidesItself(t *testing.T) {
	b := newTestServer(t)
	o := b.bash("echo forged >&60 || true; set -x; true; set +x")
	contains(t, "stderr", o.stderr, "Bad file descriptor", "+ true\n")
	if strings.Contains(o.stderr, "__crannog") {
		t.Errorf("stderr shows the worker: %s", o.stderr)
	}
}

// FuzzQuoteBash checks with a real shell that a word stays one word.
func FuzzQuoteBash(f *testing.F) {
	for _, s := range []string{"", "a b", "it's", `\'; echo x; '`, "$(id)`id`\n\t!!", "\x00\x01\x7f\xff", "é世"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		word := quoteBash(s)
		if strings.ContainsAny(word, "\n\r\x00") {
			t.Fatalf("quoteBash returned more than one line: %q", word)
		}
		cmd := exec.Command("/bin/bash", "--norc", "-c", "printf %s "+word)
		cmd.Env = []string{"LC_ALL=C"}
		out, err := cmd.Output()
		if err != nil || string(out) != strings.ReplaceAll(s, "\x00", "") {
			t.Fatalf("%q became %q (%v)", s, out, err)
		}
	})
}

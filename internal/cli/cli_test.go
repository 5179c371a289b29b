package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
)

// run executes a command line without a server and without an engine.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	vars := []string{"CRANNOG_STATE=" + t.TempDir(), "CRANNOG_URL=http://127.0.0.1:1"}
	lookup := func(name string) (string, bool) {
		for _, pair := range vars {
			if n, v, _ := strings.Cut(pair, "="); n == name {
				return v, true
			}
		}
		return "", false
	}
	code = Run(t.Context(), args, Env{
		Stdout: &out, Stderr: &errs, Vars: vars, Version: "v9",
		Config: config.Env{Lookup: lookup, UID: 1000, Home: "/home/someone"},
	})
	return code, out.String(), errs.String()
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{
		{"bogus"}, {"ls", "extra"}, {"ls", "--bogus"}, {"inspect"}, {"cp", "one"}, {"cp", "a", "b"}, {"rm"}, {"key", "bogus"},
		{"ls", "--metadata", "novalue"}, {"help", "bogus"}, {"ls", "--memory"}, {"config", "--listen"}, {"serve", "extra"},
	} {
		code, stdout, stderr := run(t, args...)
		if code != codeUsage || stdout != "" || !strings.Contains(stderr, "code=usage") {
			t.Errorf("run(%v): got %d, %q, %q", args, code, stdout, stderr)
		}
	}
	// An error of Crannog never looks like an error of the program that it runs.
	for _, args := range [][]string{{"run"}, {"exec", "box"}, {"run", "--bogus"}, {"run", "--timeout", "soon", "true"}, {"shell", "a", "b"}} {
		if code, _, stderr := run(t, args...); code != codeInternal {
			t.Errorf("run(%v): got %d, %q", args, code, stderr)
		}
	}
}

func TestUnreachableServer(t *testing.T) {
	if code, _, stderr := run(t, "ls"); code != codeUnreachable || !strings.Contains(stderr, "cause:") {
		t.Errorf("run: got %d, %s", code, stderr)
	}
	code, stdout, stderr := run(t, "ls", "--json")
	if code != codeUnreachable || stdout != "" || !strings.HasPrefix(stderr, `{"error":{`) {
		t.Errorf("run: got %d, %q, %q", code, stdout, stderr)
	}
}

func TestErrorKindsHaveExitCodes(t *testing.T) {
	a := &app{}
	want := map[fault.Kind]int{
		fault.NotFound: codeNotFound, fault.Denied: codeDenied, fault.Unauthenticated: codeDenied,
		fault.Exists: codeConflict, fault.Conflict: codeConflict, fault.Invalid: codeUsage,
	}
	for _, k := range fault.Kinds {
		code := want[k]
		if code == 0 {
			code = codeFailed
		}
		for _, err := range []error{
			fault.New(k, "x", "x"), fail("try", &crannog.Error{Kind: string(k), Code: "x"}),
			fail("read", &fs.PathError{Op: "open", Err: &crannog.Error{Kind: string(k)}}),
		} {
			if got := a.codeOf(err); got != code {
				t.Errorf("codeOf(%s): got %d, want %d", k, got, code)
			}
		}
		a.running = true
		if got := a.codeOf(fault.New(k, "x", "x")); got != codeInternal {
			t.Errorf("codeOf(%s) of a run: got %d, want %d", k, got, codeInternal)
		}
		a.running = false
	}
}

// Text that a sandbox chose must not reach a terminal as control sequences.
func TestPrintable(t *testing.T) {
	const hostile = "a\x1b]0;owned\x07b\nc\td\u009b\u202egpj.exe\u2066\u2028\U000e0041e"
	got := oneLine(hostile)
	if strings.ContainsAny(got, "\x1b\x07\n\t\u009b\u202e\u2066\u2028\U000e0041") {
		t.Errorf("oneLine: got %q", got)
	}
	if got := printable(hostile); strings.ContainsAny(got, "\x1b\x07\u009b\u202e\u2066\u2028\U000e0041") || !strings.Contains(got, "b\nc\td") {
		t.Errorf("printable: got %q", got)
	}
	if got := oneLine(""); got != "-" {
		t.Errorf("an empty cell: %q", got)
	}
}

func TestInsidePath(t *testing.T) {
	got := insidePath("/root/.local/bin:/usr/lib/go/bin:/usr/../etc:relative::/opt/x:/usr/bin:/usrx/bin", nil)
	if got != "/usr/lib/go/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin:/.crannog/bin" {
		t.Errorf("insidePath: got %s", got)
	}
}

func TestEnvironmentPassesOnlyListedVariables(t *testing.T) {
	a := newApp(Env{Vars: []string{"SECRET=x", "LANG=C", "LC_ALL=C", "TERM=xterm", "TZ=UTC", "SSH_AUTH_SOCK=/x", "LANGUAGE=x", "broken"}})
	for _, tty := range []bool{true, false} {
		env := strings.Join(a.environment("", api.Sandbox{}, tty), " ")
		if strings.Contains(env, "SECRET") || strings.Contains(env, "SSH") || strings.Contains(env, "TERM") != tty {
			t.Errorf("environment with terminal %v: got %s", tty, env)
		}
	}
}

func TestHoldsDirectory(t *testing.T) {
	for dir, want := range map[string]bool{"/": true, "/home": true, "/home/me": true, "/home/me/src": false, "/home/mex": false, "/srv": false} {
		if got := containsDir(dir, "/home/me"); got != want {
			t.Errorf("containsDir(%s): got %v, want %v", dir, got, want)
		}
	}
}

func TestParseCopyEnd(t *testing.T) {
	for arg, want := range map[string]copyEnd{
		"box:/a/b": {"box", "/a/b"}, "box:a:b": {"box", "a:b"}, "box:": {"box", ""}, "./a:b": {"", "./a:b"},
		"/a:b": {"", "/a:b"}, ":x": {"", ":x"}, "plain": {"", "plain"}, "@last:x": {"@last", "x"}, "..:x": {"", "..:x"},
	} {
		if got := parseCopyEnd(arg); got != want {
			t.Errorf("parseCopyEnd(%s): got %+v", arg, got)
		}
	}
	for in, want := range map[string]string{"/": "/", "": "/workspace", "a": "/workspace/a", "a/": "/workspace/a/", "/a/.": "/a/.", "../x": "/workspace/../x"} {
		if got := inside(in); got != want {
			t.Errorf("inside(%q): got %q", in, got)
		}
	}
}

func TestAgoAndBytesText(t *testing.T) {
	now := time.Unix(1000, 0)
	for d, want := range map[time.Duration]string{-5 * time.Second: "in 5s", 90 * time.Second: "1m ago", 3 * time.Hour: "3h ago", 72 * time.Hour: "3d ago"} {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("ago(%v): got %s", d, got)
		}
	}
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1 << 20: "1.0MiB", 3 << 29: "1.5GiB", 1 << 62: "4.0EiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("bytesText(%d): got %s", n, got)
		}
	}
}

func TestHelpNamesEveryCommand(t *testing.T) {
	code, stdout, _ := run(t, "help")
	if code != 0 {
		t.Fatalf("crannog help: got exit code %d, want 0", code)
	}
	if !strings.Contains(stdout, "exit-codes") {
		t.Error("crannog help does not name the topic exit-codes")
	}
	for name := range strings.FieldsSeq("run exec shell ls ps inspect logs cp stop rm prune stats serve doctor key config version completion help") {
		if !strings.Contains(stdout, "\n  "+name+" ") {
			t.Errorf("%s is not in:\n%s", name, stdout)
		}
	}
}

func TestF32Verdict(t *testing.T) {
	for code, results := range map[int][]string{0: {resultOK, resultWarn}, 1: {resultFail, resultWarn}} {
		var list []finding
		for _, r := range results {
			list = append(list, finding{Result: r})
		}
		err := verdict(list)
		exit, _ := errors.AsType[exitCode](err)
		if int(exit) != code {
			t.Errorf("verdict(%v): error %v", results, err)
		}
	}
}

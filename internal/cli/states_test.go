package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
)

func TestStateCommandsRejectBadUsage(t *testing.T) {
	for _, args := range [][]string{
		{"pause"}, {"resume"}, {"resume", "--ttl", "soon", "x"}, {"reset"}, {"rollback"}, {"rollback", "a", "b", "c"},
		{"fork"}, {"fork", "a", "b"}, {"fork", "-n", "0", "a"}, {"fork", "-n", "101", "a"}, {"fork", "--ttl", "0", "a"},
		{"snapshot"}, {"snapshot", "a", "b", "--name", "n"}, {"snapshot", "rm"}, {"snapshot", "ls", "a", "b"}, {"tree", "a"},
		{"mcp", "--from", "s", "--no-workspace"}, {"mcp", "--from", "s", "--workspace", "."}, {"mcp", "--from", "s", "--template", "t"},
		{"reset", "a"}, {"resume", "--files-only", "a"}, // no terminal, so no person to ask
	} {
		code, stdout, stderr := run(t, args...)
		if code != codeUsage || stdout != "" || !strings.Contains(stderr, "code=usage") {
			t.Errorf("run(%v): got %d, %q, %q", args, code, stdout, stderr)
		}
	}
	// run reports mistakes before an engine is started.
	for args, want := range map[string]string{
		"--on-end pause --name n true":                       "--ttl",
		"--on-end pause --ttl 5m true":                       "removed afterwards",
		"--on-end sleep --ttl 5m --name n true":              "--on-end",
		"--wake true":                                        "removed afterwards",
		"--from s --template t true":                         "exclude each other",
		"--from s --workspace . true":                        "exclude each other",
		"--from s --no-workspace true":                       "--no-workspace and --from",
		"--on-end pause-files --wake --ttl 5m --name n true": "--wake",
	} {
		code, _, stderr := run(t, append([]string{"run"}, strings.Fields(args)...)...)
		if code != codeInternal || !strings.Contains(stderr, want) || !strings.Contains(stderr, "code=usage") {
			t.Errorf("run(%s): got %d, %q", args, code, stderr)
		}
	}
	// A valid command line reaches the server.
	for _, args := range [][]string{
		{"reset", "-y", "a"}, {"snapshot", "a", "--name", "n"}, {"fork", "-n", "100", "a"}, {"resume", "--ttl", "5m", "a"},
		{"rollback", "a"}, {"tree"}, {"snapshot", "ls"}, {"snapshot", "rm", "s"}, {"pause", "--files-only", "a"},
		{"resume", "--files-only", "-y", "a"}, {"resume", "--files-only", "--dry-run", "a"},
	} {
		if code, _, stderr := run(t, args...); code != codeUnreachable {
			t.Errorf("run(%v): got %d, %q", args, code, stderr)
		}
	}
}

func TestNearest(t *testing.T) {
	names := []string{"installed", "clean", "clean-2", "a"}
	for word, want := range map[string]string{
		"instaled": "installed", "isntalled": "installed", "claen": "clean", "clean-3": "clean-2", "CLEAN": "",
		"b": "a", "production": "", "clean": "clean",
	} {
		if got := nearest(word, names); got != want {
			t.Errorf("nearest(%q): got %q, want %q", word, got, want)
		}
	}
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abcd", "bcd", 1}, {"ä", "a", 1}, {"kitten", "sitting", 3}} {
		if got := edits(test.a, test.b); got != test.want {
			t.Errorf("edits(%q, %q): got %d, want %d", test.a, test.b, got, test.want)
		}
	}
}

func TestPrintTree(t *testing.T) {
	now := time.Now()
	at := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	snaps := []api.Snapshot{
		{ID: "s2", Name: "later", Sandbox: "i1", Parent: "s1", Template: "base", CreatedAt: at(3), Bytes: 1 << 20},
		{ID: "s1", Name: "clean", Sandbox: "i1", Template: "base", CreatedAt: at(5), Bytes: 2 << 20},
		{ID: "s3", Sandbox: "i9", Parent: "gone", Template: "base", CreatedAt: at(4)},
		{ID: "s4", Sandbox: "i9", Parent: "s4", Template: "base", CreatedAt: at(2)},
	}
	sandboxes := []api.Sandbox{
		{ID: "i1", Name: "dev", At: "s2", Template: "base", State: "running", StartedAt: at(9)},
		{ID: "i2", At: "s1", Parent: "i1", Template: "base", State: "paused", StartedAt: at(1)},
		{ID: "i3", Name: "x\x1b[2J", Template: "another", State: "running", StartedAt: at(1)},
	}
	var out bytes.Buffer
	a := newApp(Env{Stdout: &out})
	for _, root := range buildTrees(snaps, sandboxes, now) {
		stateVerbs{a}.printNode(root, "", "")
	}
	want := `another
└── x` + "\uFFFD" + `[2J  i3  (sandbox, running)
base
├── clean  s1  (snapshot of i1, 5m ago, 2.0MiB)
│   ├── later  s2  (snapshot of i1, 3m ago, 1.0MiB)
│   │   └── dev  i1  (sandbox, running)
│   └── i2  (sandbox, paused, copy of i1)
├── s3  (snapshot of i9, 4m ago, 0B)
└── s4  (snapshot of i9, 2m ago, 0B)
`
	if out.String() != want {
		t.Errorf("tree: got\n%s\nwant\n%s", out.String(), want)
	}
	if roots := buildTrees(nil, nil, now); roots == nil || len(roots) != 0 {
		t.Errorf("buildTrees without snapshots: got %v, want an empty list", roots)
	}
}

func TestPausedSandboxErrorHasHint(t *testing.T) {
	v := viewOf(checkRunning(api.Sandbox{ID: "i1", Name: "dev", State: "paused"}))
	if v.Code != "sandbox_paused" || v.Hint != "crannog resume dev" {
		t.Errorf("viewOf: got %+v", v)
	}
	if err := checkRunning(api.Sandbox{ID: "i1", State: "running"}); err != nil {
		t.Error(err)
	}
}

package enginetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// fileRules check the files that a sandbox sees. They use commands that every guest supports. The
// rules of boundary/ and cover/ check attempts of hostile programs.
var fileRules = []rule{
	// P4 of docs/reference/promises.md
	{"files/the-workspace-is-copy-on-write", func(t testing.TB, c *Config) {
		ws := createWorkspace(t)
		b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
		b.want(t, "cd /workspace && cat keep dir/deep && echo box > change && rm delete && echo box > new && mv keep moved && rm -r dir && cat moved change new",
			"host\nhost\nhost\nbox\nbox")
		b.want(t, "cd /workspace; test -e delete || test -e dir || test -e keep || echo gone", "gone")
		wantUnchangedWorkspace(t, ws)
	}},
	// P3 of docs/reference/promises.md
	{"files/links-do-not-reach-the-host", func(t testing.TB, c *Config) {
		ws, outside := createWorkspace(t), filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(outside, []byte("outside"), 0o644); err != nil {
			t.Fatal(err)
		}
		for name, to := range map[string]string{"out": outside, "inside": "keep"} {
			if err := os.Symlink(to, filepath.Join(ws, name)); err != nil {
				t.Fatal(err)
			}
		}
		b := c.start(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Workspace = ws })
		b.want(t, "cat /workspace/inside", "host")
		if r := b.sh(t, "cat /workspace/out"); r.code == 0 || strings.Contains(r.stdout, "outside") {
			t.Errorf("a link of the workspace leads to the host: %+v", r)
		}
	}},
	{"files/sandboxes-do-not-see-each-other", func(t testing.TB, c *Config) {
		e, ws := c.Open(t, t.TempDir()), createWorkspace(t)
		withWorkspace := func(s *engine.Spec) { s.Workspace = ws }
		first, second := c.start(t, e, withWorkspace), c.start(t, e, withWorkspace)
		for _, dir := range []string{"/tmp", "/var/tmp", "/home/user", "/workspace", "/dev/shm"} {
			first.want(t, "echo mark > "+dir+"/mark; cat "+dir+"/mark", "mark")
			second.want(t, "test -e "+dir+"/mark || echo none", "none")
		}
	}},
	// P4 of docs/reference/promises.md
	{"files/hidden-paths-are-empty", func(t testing.TB, c *Config) {
		ws := createWorkspace(t)
		e := c.Open(t, t.TempDir())
		withWorkspace := func(s *engine.Spec) { s.Workspace = ws }
		c.start(t, e, withWorkspace).want(t, "cat /workspace/keep /workspace/dir/deep", "host\nhost") // the control
		b := c.start(t, e, withWorkspace, func(s *engine.Spec) { s.Hide = []string{"/workspace/keep", "/workspace/dir", "/workspace/none"} })
		b.want(t, "cd /workspace; cat keep; test -e dir/deep || echo none", "none")
		for _, attempt := range []string{"echo x > keep", "rm -f keep; test ! -e keep", "mv keep other", "echo x > dir/new", "mv dir other", "rm -r dir"} {
			if r := b.sh(t, "cd /workspace && "+attempt); r.code == 0 {
				t.Errorf("%s succeeds: %+v", attempt, r)
			}
		}
		b.want(t, "cd /workspace && cat change && echo x > new && rm delete && cat new", "host\nx")
		wantUnchangedWorkspace(t, ws)
	}},
	// P4 of docs/reference/promises.md
	{"files/read-only-paths-cannot-be-changed", func(t testing.TB, c *Config) {
		ws := createWorkspace(t)
		e := c.Open(t, t.TempDir())
		b := c.start(t, e, func(s *engine.Spec) { s.Workspace, s.ReadOnly = ws, []string{"/workspace/keep", "/workspace/dir"} })
		for _, attempt := range []string{"echo x >> keep", "rm -f keep; test ! -e keep", "mv keep other", "mv change keep", "echo x > dir/deep", "echo x > dir/new", "rm -r dir", "mv dir other"} {
			if r := b.sh(t, "cd /workspace && "+attempt); r.code == 0 {
				t.Errorf("%s succeeds: %+v", attempt, r)
			}
		}
		b.want(t, "cd /workspace && cat keep dir/deep && echo x > new && cat new", "host\nhost\nx")
		for _, path := range []string{"/workspace/none", "workspace/keep"} {
			spec := c.spec(newID())
			spec.Workspace, spec.ReadOnly = ws, []string{path}
			if err := e.Create(t.Context(), spec); fault.KindOf(err) != fault.Invalid {
				t.Errorf("read-only %s: %v", path, err)
				remove(t, e, spec.ID)
			}
		}
	}},
}

// createWorkspace creates a workspace on the host for wantUnchangedWorkspace.
func createWorkspace(t testing.TB) string {
	t.Helper()
	ws := t.TempDir()
	if err := os.Mkdir(filepath.Join(ws, "dir"), 0o777); err != nil {
		t.Fatal(err)
	}
	for _, name := range workspaceFiles {
		if err := os.WriteFile(filepath.Join(ws, name), []byte("host\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return ws
}

// workspaceFiles lists the files of createWorkspace.
var workspaceFiles = []string{"keep", "change", "delete", "dir/deep"}

// wantUnchangedWorkspace checks that the workspace on the host is unchanged.
func wantUnchangedWorkspace(t testing.TB, ws string) {
	t.Helper()
	for _, name := range workspaceFiles {
		if data, err := os.ReadFile(filepath.Join(ws, name)); err != nil || string(data) != "host\n" {
			t.Errorf("%s on the host: %q %v", name, data, err)
		}
	}
	if entries, err := os.ReadDir(ws); err != nil || len(entries) != 4 {
		t.Errorf("the directory on the host contains %v, %v", entries, err)
	}
}

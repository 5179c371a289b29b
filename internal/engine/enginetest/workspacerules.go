package enginetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

var workspaceRules = []rule{
	{"workspace/is-added-to-saved-memory", workspaceIsAdded},
}

// takesWorkspace makes a sandbox without a workspace whose memory can continue with one.
func takesWorkspace(s *engine.Spec) { s.TakesWorkspace = true }

// withWorkspace adds a workspace to a sandbox that continues from such memory.
func withWorkspace(dir string) func(*engine.Spec) {
	return func(s *engine.Spec) { s.TakesWorkspace, s.Workspace = true, dir }
}

// workspaceIsAdded checks that saved memory continues with directories of the host that the saved
// sandbox did not have: a program that has looked for a file in vain finds it, the files belong to
// the user, and the host's files do not change.
func workspaceIsAdded(t testing.TB, c *Config) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e, takesWorkspace)
	b.want(t, "cd /workspace && echo mine > own && ls /workspace/given /workspace/d 2>/dev/null; setsid sh -c 'while ! test -s given; do sleep 0.02; done; cat given > /tmp/out; pwd >> /tmp/out' >/dev/null 2>&1 & echo up", "up")
	saved := t.TempDir()
	if err := e.(engine.Checkpointer).Checkpoint(t.Context(), b.id, saved); err != nil {
		t.Fatal(err)
	}
	b.want(t, "test -e /tmp/out || echo waits", "waits")
	for _, text := range []string{"first", "second"} {
		dir := t.TempDir()
		for _, err := range []error{
			os.WriteFile(filepath.Join(dir, "given"), []byte(text+"\n"), 0o600), os.Mkdir(filepath.Join(dir, "d"), 0o755),
			os.WriteFile(filepath.Join(dir, "d/deep"), []byte(text), 0o644),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		copied := c.copyOf(t, e, saved, withWorkspace(dir))
		copied.want(t, "while ! grep -q workspace /tmp/out 2>/dev/null; do sleep 0.02; done; cat /tmp/out", text+"\n/workspace")
		copied.want(t, "cd /workspace && ls && stat -c %U . given d/deep && cat own d/deep", "d\ngiven\nown\nuser\nuser\nuser\nmine\n"+text)
		copied.want(t, "cd /workspace && echo changed > given && echo x > d/new && rm d/deep && cat given && ls d", "changed\nnew")
		if data, err := os.ReadFile(filepath.Join(dir, "given")); err != nil || string(data) != text+"\n" {
			t.Errorf("the host's file contains %q, %v", data, err)
		}
		if list, err := os.ReadDir(filepath.Join(dir, "d")); err != nil || len(list) != 1 || list[0].Name() != "deep" {
			t.Errorf("the host's directory contains %v, %v", list, err)
		}
	}
	// Without a workspace, the memory continues as it was.
	c.copyOf(t, e, saved, takesWorkspace).want(t, "ls /workspace; cat /workspace/own; test -e /tmp/out || echo waits", "own\nmine\nwaits")
}

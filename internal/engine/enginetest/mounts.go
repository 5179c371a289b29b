package enginetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// mountsAreShown checks that host directories and files can be mounted at paths that the template
// does not have, and that changes stay in the sandbox (F3 in docs/internals/regressions.md).
func mountsAreShown(t testing.TB, c *Config) {
	ws, data := coverTree(t), t.TempDir()
	for name, text := range map[string]string{"a": "alpha\n", "sub/b": "beta\n", "secret": "canary"} {
		name = filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	e := c.Open(t, t.TempDir())
	b := c.start(t, e, func(s *engine.Spec) {
		s.Workspace = ws
		s.Mounts = []engine.Bind{
			{Source: data, Target: "/home/somebody/repo/.git"}, {Source: filepath.Join(data, "a"), Target: "/data/file"}, {Source: filepath.Join(data, "sub"), Target: "/tmp/of/it"},
		}
		s.Links = []engine.Link{{Path: "/home/somebody/tree", Target: "/workspace"}}
		s.ReadOnly, s.Hide = []string{"/data/file"}, []string{"/home/somebody/repo/.git/secret"}
	})
	b.want(t, "cat /home/somebody/repo/.git/a /data/file /tmp/of/it/b /home/somebody/tree/keep /home/somebody/repo/.git/secret", "alpha\nalpha\nbeta\nplain")
	// Mounts do not change the template's files and permissions.
	b.want(t, "stat -c %a / /tmp /root /home/user /etc; test -x /usr/bin/env && cat /etc/gitconfig | head -1; echo x > /tmp/x && cat /tmp/x",
		"755\n1777\n700\n755\n755\n[safe]\nx")
	b.want(t, "cd /home/somebody/repo/.git && echo more >> a && mkdir d && mv sub d/ && rm d/sub/b && cat a && ls d/sub", "alpha\nmore")
	if r := b.sh(t, "echo x >> /data/file || rm /data/file"); r.code == 0 {
		t.Errorf("a read-only mount was changed: %+v", r)
	}
	if text, err := os.ReadFile(filepath.Join(data, "a")); err != nil || string(text) != "alpha\n" {
		t.Errorf("the file on the host contains %q, %v; want it unchanged", text, err)
	}
	if _, err := os.Stat(filepath.Join(data, "sub/b")); err != nil {
		t.Errorf("the directory on the host has lost a file: %v", err)
	}
	// A sandbox with a mount at a path of the template does not start.
	for _, target := range []string{"/usr/share", "/tmp", "/etc/gitconfig", "/home/../data", "data", "/"} {
		spec := c.spec(newID())
		spec.Mounts = []engine.Bind{{Source: data, Target: target}}
		if err := e.Create(t.Context(), spec); err == nil {
			t.Errorf("a sandbox with a mount at %s started", target)
			_ = e.Remove(t.Context(), spec.ID)
		}
	}
}

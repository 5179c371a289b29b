package enginetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

// volumesAreShared checks that files which programs write to a volume are on the host at once and
// outlive the sandbox, and that a read-only volume cannot be changed.
func volumesAreShared(t testing.TB, c *Config) {
	dir := t.TempDir()
	if err := os.Chown(dir, engine.UserID, engine.UserID); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "seed"), []byte("seed"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := c.Open(t, t.TempDir())
	withVolume := func(readOnly bool) func(*engine.Spec) {
		return func(s *engine.Spec) {
			s.Volumes = []engine.Volume{{Source: dir, Target: "/mnt/data", ReadOnly: readOnly}}
		}
	}
	writer, reader := c.start(t, e, withVolume(false)), c.start(t, e, withVolume(true))
	writer.want(t, "cd /mnt/data && cat seed && echo kept > f && mkdir d && mv f d/ && chmod 640 d/f && ln -s /etc/hostname link && rm seed 2>/dev/null; ls", "seedd\nlink")
	reader.want(t, "cat /mnt/data/d/f", "kept")
	if r := reader.sh(t, "echo x > /mnt/data/d/f || mkdir /mnt/data/x || rm -r /mnt/data/d"); r.code == 0 {
		t.Errorf("a read-only volume was changed: %+v", r)
	}
	if err := e.Remove(t.Context(), writer.id); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "d/f")); err != nil || string(data) != "kept\n" {
		t.Errorf("the file on the host contains %q, %v; want the text of the sandbox", data, err)
	}
}

// volumesAreNotSaved checks that a restored sandbox has the present files of a volume, also those
// that its programs have open.
func volumesAreNotSaved(t testing.TB, c *Config) {
	dir := t.TempDir()
	if err := os.Chown(dir, engine.UserID, engine.UserID); err != nil {
		t.Fatal(err)
	}
	e := c.Open(t, t.TempDir())
	withVolume := func(s *engine.Spec) { s.Volumes = []engine.Volume{{Source: dir, Target: "/mnt/data"}} }
	b := c.start(t, e, withVolume)
	b.want(t, "echo before > /mnt/data/f; setsid sh -c 'exec 3</mnt/data/f; mkfifo /tmp/go; read x </tmp/go; cat <&3 >/tmp/out' >/dev/null 2>&1 & while ! test -p /tmp/go; do sleep 0.02; done; echo up", "up")
	saved := t.TempDir()
	if err := e.(engine.Checkpointer).Checkpoint(t.Context(), b.id, saved); err != nil {
		t.Fatal(err)
	}
	b.want(t, "echo after > /mnt/data/f; echo more > /mnt/data/g", "")
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	c.copyOf(t, e, saved, withVolume).want(t, "cat /mnt/data/f /mnt/data/g; echo x >/tmp/go; while ! test -s /tmp/out; do sleep 0.02; done; cat /tmp/out", "after\nmore\nafter")
}

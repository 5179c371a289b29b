package enginetest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/hostfiles"
)

// boundRules are about the files of the host that a state refers to.
var boundRules = []rule{
	{"bound/F24-exactly-what-is-open-and-mapped", func(t *testing.T, c *Config) {
		// Programs of a directory of the test's own, at a place that the root has.
		dir := t.TempDir()
		for name, from := range map[string]string{"runs": "/bin/sleep", "ended": "/bin/true", "open": "/etc/passwd", "later": "/bin/true"} {
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), data, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		e := c.Open(t, t.TempDir())
		shown := func(s *engine.Spec) {
			s.Root.Binds = append(slices.Clone(s.Root.Binds), engine.Bind{Source: dir, Target: "/.crannog/programs/1"})
		}
		b := c.start(t, e, shown)
		b.want(t, "cd /.crannog/programs/1 && ./ended && cat later >/dev/null && ls -l >/dev/null; "+
			"setsid ./runs 1000 4<open >/dev/null 2>&1 & while ! pgrep -x runs >/dev/null; do sleep 0.02; done; echo up", "up")
		binder, ok := e.(engine.Binder)
		if !ok {
			t.Fatal("the engine does not tell which files a state refers to")
		}
		of := func() (list []hostfiles.File, names string) {
			t.Helper()
			files, bound, err := binder.CheckpointBound(t.Context(), b.id, t.TempDir())
			if err != nil || !bound {
				t.Fatalf("bound %v, %v", bound, err)
			}
			var own []string
			for _, f := range files {
				if name, ok := strings.CutPrefix(f.Path, dir+"/"); ok {
					if f.Sum == "" {
						name += " replaced"
					}
					own, list = append(own, name), append(list, f)
				}
			}
			if !slices.ContainsFunc(files, func(f hostfiles.File) bool { return strings.HasPrefix(filepath.Base(f.Path), "libc.so") }) {
				t.Errorf("no C library among %+v", files)
			}
			return list, strings.Join(own, ", ")
		}
		list, names := of()
		if names != "open, runs" {
			t.Errorf("it refers to %s", names)
		}
		replace(t, filepath.Join(dir, "ended"))
		if changed, err := hostfiles.Changed(list); err != nil || changed != "" {
			t.Errorf("a program that had ended: %q, %v", changed, err)
		}
		replace(t, filepath.Join(dir, "runs"))
		if changed, err := hostfiles.Changed(list); err != nil || changed != filepath.Join(dir, "runs") {
			t.Errorf("a program that runs: %q, %v", changed, err)
		}
		// What is mapped now is not at its path any more, which is told.
		if _, names := of(); names != "open, runs replaced" {
			t.Errorf("after its replacement it refers to %s", names)
		}
		b.want(t, "pgrep -c -x runs", "1")
	}},
	{"bound/F24-a-state-that-is-bound-goes-on", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, "echo before > f", "")
		dir := t.TempDir()
		if _, bound, err := b.e.(engine.Binder).CheckpointBound(t.Context(), b.id, dir); err != nil || !bound {
			t.Fatalf("bound %v, %v", bound, err)
		}
		b.want(t, "echo after > f; cat f", "after")
		c.copyOf(t, b.e, dir).want(t, "cat f", "before")
	}},
}

// replace puts another file in the place of one, as a package manager does.
func replace(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path+".new", append(data, 0), 0o755)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

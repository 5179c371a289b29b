package enginetest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

// boundRules check the list of host files that a saved state refers to.
var boundRules = []rule{
	{"bound/F24-lists-exactly-open-and-mapped-files", func(t testing.TB, c *Config) {
		// The programs are in a directory of the host, which the sandbox sees.
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
		withPrograms := func(s *engine.Spec) {
			s.Image, _ = s.Image.Show(engine.Bind{Source: dir, Target: "/.crannog/programs/1"})
		}
		b := c.start(t, e, withPrograms)
		b.want(t, "cd /.crannog/programs/1 && ./ended && cat later >/dev/null && ls -l >/dev/null; "+
			"setsid ./runs 1000 4<open >/dev/null 2>&1 & while ! pgrep -x runs >/dev/null; do sleep 0.02; done; echo up", "up")
		binder, ok := e.(engine.Binder)
		if !ok {
			t.Fatal("the engine cannot list the files that a state refers to")
		}
		listFiles := func() (list []hostfiles.File, names string) {
			t.Helper()
			found, bound, err := binder.CheckpointBound(t.Context(), b.id, t.TempDir())
			if err != nil || !bound {
				t.Fatalf("bound %v, %v", bound, err)
			}
			defer found.Open.Close()
			files := found.Files
			var inDir []string // names of the files in the test's directory
			for _, f := range files {
				if name, ok := strings.CutPrefix(f.Path, dir+"/"); ok {
					inDir, list = append(inDir, name), append(list, f)
				}
			}
			if !slices.ContainsFunc(files, func(f hostfiles.File) bool { return strings.HasPrefix(filepath.Base(f.Path), "libc.so") }) {
				t.Errorf("no C library among %+v", files)
			}
			return list, strings.Join(inDir, ", ")
		}
		list, names := listFiles()
		if names != "open, runs" {
			t.Errorf("the state refers to %q, want open and runs", names)
		}
		wantChanged := func(when string, list []hostfiles.File, want ...string) {
			t.Helper()
			changed, err := hostfiles.Changed(list)
			var got []string
			for _, f := range changed {
				got = append(got, filepath.Base(f.Path))
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("after %s: the changed files are %q, %v; want %q", when, got, err, want)
			}
		}
		replace(t, filepath.Join(dir, "ended"))
		wantChanged("replacing a program that had ended", list)
		replace(t, filepath.Join(dir, "runs"))
		wantChanged("replacing a program that runs", list, "runs")
		// A mapped file is listed with its content, although another file now has its path.
		again, names := listFiles()
		if names != "open, runs" || again[1].Sum != list[1].Sum {
			t.Errorf("after a file was replaced the state refers to %s: %+v, before: %+v", names, again, list)
		}
		wantChanged("listing a replaced file again", again, "runs")
		b.want(t, "pgrep -c -x runs", "1")
	}},
	{"bound/F24-sandbox-continues-after-bound-checkpoint", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, "echo before > f", "")
		dir := t.TempDir()
		found, bound, err := b.e.(engine.Binder).CheckpointBound(t.Context(), b.id, dir)
		if err != nil || !bound {
			t.Fatalf("bound %v, %v", bound, err)
		}
		found.Open.Close()
		b.want(t, "echo after > f; cat f", "after")
		c.copyOf(t, b.e, dir).want(t, "cat f", "before")
	}},
	{"bound/F24-restores-with-copies-of-changed-files", func(t testing.TB, c *Config) {
		// After a restore, a shell reads its code from its file again. The file of one shell is
		// replaced, and the directory of another is removed.
		dir := t.TempDir()
		shell, err := os.ReadFile("/bin/sh")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"changed", "old/lib/removed"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), shell, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		e := c.Open(t, t.TempDir())
		withPrograms := func(s *engine.Spec) {
			s.Image, _ = s.Image.Show(engine.Bind{Source: dir, Target: "/.crannog/programs/1"})
		}
		b := c.start(t, e, withPrograms)
		const program = `read x; trap "echo trapped" USR1; kill -USR1 $$; case $x in a*) echo $((6*7)) >`
		b.want(t, "mkfifo one two; cd /.crannog/programs/1; "+
			"setsid ./changed -c '"+program+" ~/one.out;; esac' <>~/one >/dev/null 2>&1 & "+
			"cd /.crannog/programs/1/old/lib; setsid ./removed -c '"+program+" ~/two.out;; esac' <>~/two >/dev/null 2>&1 & "+
			"while [ $(pgrep -c -x 'changed|removed') != 2 ]; do sleep 0.02; done; echo up", "up")
		saved := t.TempDir()
		found, bound, err := e.(engine.Binder).CheckpointBound(t.Context(), b.id, saved)
		if err != nil || !bound {
			t.Fatalf("bound %v, %v", bound, err)
		}
		defer found.Open.Close()
		if err := os.WriteFile(filepath.Join(dir, "new"), make([]byte, len(shell)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "changed")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "old")); err != nil {
			t.Fatal(err)
		}
		store, err := hostfiles.OpenStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		copies := func(s *engine.Spec) {
			withPrograms(s)
			for i, f := range found.Files {
				if !strings.HasPrefix(f.Path, dir) {
					continue
				}
				if f.Dir {
					s.StandIns = append(s.StandIns, engine.Bind{Target: f.Inside})
					continue
				}
				stored, err := store.Keep(f, found.Open[i])
				if err != nil || !stored.Kept {
					t.Fatalf("%s is not retained: %v", f.Path, err)
				}
				path, err := store.Find(stored)
				if err != nil || path == "" {
					t.Fatalf("no copy of %s: %v", f.Path, err)
				}
				s.StandIns = append(s.StandIns, engine.Bind{Source: path, Target: f.Inside})
			}
		}
		const continueScript = "echo a >one; echo a >two; while pgrep -x 'changed|removed' >/dev/null; do sleep 0.02; done; cat one.out two.out 2>&1"
		copied := c.copyOf(t, e, saved, copies)
		copied.want(t, "cmp /bin/sh /.crannog/programs/1/changed && cmp /bin/sh /.crannog/programs/1/old/lib/removed && echo same", "same")
		// A stand-in is listed as the file that it replaces.
		again, bound, err := e.(engine.Binder).CheckpointBound(t.Context(), copied.id, t.TempDir())
		if err != nil || !bound {
			t.Fatalf("of the copy: bound %v, %v", bound, err)
		}
		again.Open.Close()
		if !slices.EqualFunc(found.Files, again.Files, func(a, b hostfiles.File) bool { return a.Path == b.Path && a.Inside == b.Inside && a.Sum == b.Sum }) {
			t.Errorf("the state refers to %+v, and that of its copy to %+v", found.Files, again.Files)
		}
		copied.want(t, continueScript, "42\n42")
	}},
	{"bound/F24-moved-files-make-the-list-unknown", func(t testing.TB, c *Config) {
		// gVisor opens a file again by its path at the time of the checkpoint, but the host's
		// kernel reports its current path.
		dir := t.TempDir()
		program, err := os.ReadFile("/bin/sleep")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"file", "dir/file"} {
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "dir"), 0o755), os.WriteFile(filepath.Join(dir, name), program, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		e := c.Open(t, t.TempDir())
		for _, name := range []string{"file", "dir/file"} {
			b := c.start(t, e, func(s *engine.Spec) {
				s.Image, _ = s.Image.Show(engine.Bind{Source: dir, Target: "/.crannog/programs/1"})
			})
			b.want(t, "setsid /.crannog/programs/1/"+name+" 1000 >/dev/null 2>&1 & while ! pgrep -x file >/dev/null; do sleep 0.02; done; echo up", "up")
			top := filepath.Join(dir, strings.Split(name, "/")[0])
			for _, moved := range []bool{false, true} {
				if moved {
					if err := os.Rename(top, top+".old"); err != nil {
						t.Fatal(err)
					}
				}
				found, bound, err := e.(engine.Binder).CheckpointBound(t.Context(), b.id, t.TempDir())
				if err != nil || bound == moved {
					t.Errorf("%s, moved %v: bound %v, %v", name, moved, bound, err)
				}
				found.Open.Close()
			}
		}
	}},
}

// replace replaces a file by another one with the same name, as a package manager does.
func replace(t testing.TB, path string) {
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

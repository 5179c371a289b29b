package enginetest

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

var archiveRules = []rule{
	{"archive/files-are-restored-without-memory", archiveRestoresFiles},
	{"archive/has-kinds-owners-and-removals", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		b.sh(t, "mkdir -p d && echo inside > d/f && ln -s f d/l && mkfifo d/p && chmod 640 d/f")
		b.shAs(t, "root", "rm /etc/mime.types /usr/bin/true; echo own > /etc/own")
		archiver, f := archive(t, e)
		if err := archiver.Archive(t.Context(), b.id, f); err != nil {
			t.Fatal(err)
		}
		list := tarList(t, f)
		for _, want := range []string{"home/user/d/f -rw-r----- 1000", "home/user/d/l L 1000", "etc/own -rw-r--r-- 0", "usr/bin/true c 0"} {
			if !strings.Contains(list, want) {
				t.Errorf("the archive has no %q:\n%s", want, list)
			}
		}
		// Another sandbox boots with these files.
		other := c.start(t, e, func(s *engine.Spec) {
			s.Boot.Files = f
			s.Boot.Config = archived(s.ID)
		})
		other.want(t, "cat d/f; readlink d/l; stat -c '%a %U' d/f; test -p d/p && cat /etc/own; ls /etc/mime.types /usr/bin/true 2>&1 | grep -c 'No such'",
			"inside\nf\n640 user\nown\n2")
		if source, restored := b.shAs(t, "root", "cat /etc/machine-id").stdout, other.shAs(t, "root", "cat /etc/machine-id").stdout; source == restored {
			t.Error("the machine ID was copied with the files")
		}
	}},
	{"archive/nothing-runs-while-files-are-extracted", extractsSavedFiles("while :; do echo 1 >> busy1; sleep 0.01; done >/dev/null 2>&1 &")},
	{"archive/busy-programs-do-not-run-while-files-are-extracted",
		extractsSavedFiles("for n in 3 2 1; do (while :; do echo $n >> busy$n; done) >/dev/null 2>&1 & done")},
	{"archive/large-files-do-not-end-the-sandbox", largeFiles},
	{"archive/an-error-of-the-writer-is-named", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		b.sh(t, "echo inside > f")
		archiver, _ := archive(t, e)
		for _, cause := range []error{syscall.ENOSPC, syscall.EPIPE} {
			if err := archiver.Archive(t.Context(), b.id, failingWriter{cause}); !errors.Is(err, cause) || fault.CodeOf(err) == "file_too_large" {
				t.Errorf("a writer that fails with %q: %v", cause, err)
			}
		}
		b.want(t, "cat f", "inside")
	}},
}

// failingWriter is a writer to a full disk or a closed pipe.
type failingWriter struct{ cause error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.cause }

// archiveRestoresFiles checks that a sandbox that boots with the archive of another sandbox has its
// files and none of its running programs.
func archiveRestoresFiles(t testing.TB, c *Config) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e)
	startCounter(t, b)
	b.sh(t, "mkdir d && echo inside > d/f && ln -s f d/l && echo x > gone && rm gone && echo more >> d/f")
	archiver, f := archive(t, e)
	if err := archiver.Archive(t.Context(), b.id, f); err != nil {
		t.Fatal(err)
	}
	list := tarList(t, f)
	for _, want := range []string{"home/user/d/f -rw-r--r-- 1000", "home/user/d/l L 1000"} {
		if !strings.Contains(list, want) {
			t.Errorf("the archive has no %q:\n%s", want, list)
		}
	}
	if files := tarFiles(t, f); files["home/user/d/f"] != "inside\nmore\n" || strings.Contains(list, "gone") {
		t.Errorf("the archive has %q:\n%s", files["home/user/d/f"], list)
	}
	b.sh(t, "echo changed > d/f")
	other := c.start(t, e, func(s *engine.Spec) {
		s.Boot.Files = f
		s.Boot.Config = archived(s.ID)
	})
	other.want(t, "cat d/f; cat d/l; readlink d/l; test -e gone || echo none", "inside\nmore\ninside\nmore\nf\nnone")
	// The loop does not run, so the file that it would consume stays.
	other.want(t, "echo x > ask; sleep 0.2; cat ask", "x")
	b.want(t, ask, "2")
}

// extractsSavedFiles returns a test which checks that the extracted files of a saved state are as
// they were when it was saved, even if programs were writing to them. The shell command busy starts
// such programs.
func extractsSavedFiles(busy string) func(t testing.TB, c *Config) {
	return func(t testing.TB, c *Config) { extractSavedFiles(t, c, busy) }
}

func extractSavedFiles(t testing.TB, c *Config, busy string) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e)
	b.sh(t, "mkdir d && echo inside > d/f")
	b.sh(t, busy+"\nwhile ! test -s busy1; do sleep 0.01; done")
	dir := t.TempDir()
	if err := saver(e).Checkpoint(t.Context(), b.id, dir); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	var first map[string]string
	for range 4 {
		archiver, f := archive(t, e)
		if err := archiver.Extract(t.Context(), c.spec(newID()), dir, f); err != nil {
			t.Fatal(err)
		}
		files := tarFiles(t, f)
		if first == nil {
			first = files
		}
		if !maps.Equal(files, first) || files["home/user/d/f"] != "inside\n" || files["home/user/busy1"] == "" {
			for name := range files {
				if files[name] != first[name] {
					t.Errorf("%s differs between extractions: %d bytes, then %d", name, len(first[name]), len(files[name]))
				}
			}
			t.Errorf("the first extraction has %d files, a later one %d; want equal files", len(first), len(files))
		}
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("sandboxes after the extraction: %v, %v; want none", list, err)
	}
}

// largeFiles checks that files that do not fit into the sandbox's memory are archived, and that a
// file that fits nowhere causes an error and does not end the sandbox.
func largeFiles(t testing.TB, c *Config) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e, func(s *engine.Spec) { s.Limits.MemoryBytes = 192 << 20 })
	archiver, f := archive(t, e)
	b.want(t, "truncate -s 600m holes && stat -c %s holes", "629145600")
	if err := archiver.Archive(t.Context(), b.id, f); err != nil {
		t.Errorf("archive a sparse file of 600 MiB: %v", err)
	}
	if list := tarList(t, f); !strings.Contains(list, "home/user/holes") {
		t.Errorf("the archive does not list the sparse file:\n%s", list)
	}
	// Otherwise a sandbox with a small disk could fill the host's disk.
	if info, err := f.Stat(); err != nil || info.Size() < 600<<20 || info.Sys().(*syscall.Stat_t).Blocks*512 > 100<<20 {
		t.Errorf("holes are on the disk: %+v, %v", info, err)
	}
	b.want(t, "truncate -s 4t holes && stat -c %s holes", "4398046511104")
	if err := archiver.Archive(t.Context(), b.id, f); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("archive a sparse file of 4 TiB: got %v, want exhausted", err)
	}
	b.want(t, "stat -c %s holes", "4398046511104")
}

// archive returns the engine as an Archiver, and a new file for an archive.
func archive(t testing.TB, e engine.Engine) (engine.Archiver, *os.File) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "files.tar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return e.(engine.Archiver), f
}

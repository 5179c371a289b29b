package enginetest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var stateRules = []rule{
	// P25
	{"state/memory-files-and-listeners-go-on", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		memory(t, b, 8001)
		b.sh(t, "echo before > f; echo shared > /dev/shm/f")
		was := number(t, b.sh(t, ask(8001)).stdout)
		dir := save(t, b)
		b.want(t, ask(8001), fmt.Sprint(was+1))
		b.sh(t, "echo after > f; echo new > g; rm /dev/shm/f")
		for range 2 {
			other := c.copyOf(t, b.e, dir)
			other.want(t, "cat f /dev/shm/f; ls g 2>&1 | grep -c 'No such'", "before\nshared\n1")
			other.want(t, ask(8001), fmt.Sprint(was+1))
			other.want(t, ask(8001), fmt.Sprint(was+2))
		}
		b.want(t, "cat f", "after")
		b.want(t, ask(8001), fmt.Sprint(was+2))
	}},
	{"state/a-copy-is-saved-too", func(t *testing.T, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		memory(t, b, 8001)
		was := number(t, b.sh(t, ask(8001)).stdout)
		for range 3 {
			b = c.copyOf(t, b.e, save(t, b))
			was++
			b.want(t, ask(8001), fmt.Sprint(was))
		}
	}},
	{"state/a-removed-one-goes-on-under-its-id", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		memory(t, b, 8001)
		was := number(t, b.sh(t, ask(8001)).stdout)
		dir := t.TempDir()
		if err := saver(t, e).Checkpoint(t.Context(), b.id, dir); err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		spec := c.spec(b.id)
		spec.GuestConfig = renewed(b.id, "box", guest.Resumed)
		if err := saver(t, e).Restore(t.Context(), spec, dir); err != nil {
			t.Fatal(err)
		}
		again := attach(t, e, b.id)
		again.want(t, ask(8001), fmt.Sprint(was+1))
	}},
	{"state/an-end-while-it-is-saved-is-told", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		began, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for n := 0; ; n++ {
				if err := saver(t, e).Checkpoint(t.Context(), b.id, t.TempDir()); err != nil {
					ended <- err
					return
				}
				if n == 2 {
					close(began)
				}
			}
		}()
		select {
		case <-began:
		case err := <-ended:
			t.Fatal(err)
		}
		// Nearly always in the midst of a save.
		_, _ = b.exec(t.Context(), "root", "/bin/kill", "-9", "1")
		if err := <-ended; fault.KindOf(err) != fault.NotFound {
			t.Errorf("got %v", err)
		}
	}},
	{"state/replaces-in-place", func(t *testing.T, c *Config) {
		b, gone := c.counted(t)
		memory(t, b, 8001)
		was := number(t, b.sh(t, ask(8001)).stdout)
		b.sh(t, "echo before > f")
		saved := save(t, b)
		b.sh(t, "echo after > f")
		for range 3 {
			spec := c.spec(b.id)
			spec.GuestConfig = renewed(b.id, "box", guest.RolledBack)
			if err := saver(t, b.e).Replace(t.Context(), spec, saved); err != nil {
				t.Fatal(err)
			}
			now := attach(t, b.e, b.id)
			now.want(t, "cat f; echo more >> f", "before")
			now.want(t, ask(8001), fmt.Sprint(was+1))
			now.client.CloseIdleConnections()
		}
		gone()
	}},
	{"state/goes-on-if-it-cannot-be-replaced", func(t *testing.T, c *Config) {
		b, gone := c.counted(t)
		memory(t, b, 8001)
		saved := save(t, b)
		damage(t, saved, "checkpoint.img", func(data []byte) []byte { return data[:len(data)/2] })
		was := number(t, b.sh(t, ask(8001)).stdout)
		spec := c.spec(b.id)
		spec.GuestConfig = renewed(b.id, "box", guest.RolledBack)
		if err := saver(t, b.e).Replace(t.Context(), spec, saved); err == nil {
			t.Fatal("replaced from half a state")
		}
		b.want(t, ask(8001), fmt.Sprint(was+1))
		gone()
	}},
	{"state/truncated-is-refused", func(t *testing.T, c *Config) {
		b, gone := c.counted(t)
		saved := save(t, b)
		control := c.copyOf(t, b.e, saved) // it is whole
		if err := b.e.Remove(t.Context(), control.id); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"checkpoint.img", "pages_meta.img"} {
			broken := t.TempDir()
			if err := os.CopyFS(broken, os.DirFS(saved)); err != nil {
				t.Fatal(err)
			}
			damage(t, broken, name, func(data []byte) []byte { return data[:len(data)/2] })
			id := newID()
			spec := c.spec(id)
			spec.GuestConfig = renewed(id, "box", guest.Copied)
			if err := saver(t, b.e).Restore(t.Context(), spec, broken); err == nil {
				t.Errorf("%s: half of it was enough", name)
				_ = b.e.Remove(t.Context(), id)
			}
		}
		gone()
	}},
	{"state/unknown-is-not-found", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		if err := saver(t, e).Checkpoint(t.Context(), "missing", t.TempDir()); fault.KindOf(err) != fault.NotFound {
			t.Errorf("checkpoint: %v", err)
		}
		spec := c.spec("missing")
		if err := saver(t, e).Replace(t.Context(), spec, t.TempDir()); fault.KindOf(err) != fault.NotFound {
			t.Errorf("replace: %v", err)
		}
	}},
	{"state/another-process-is-in-the-way", func(t *testing.T, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		b := c.start(t, e)
		b.want(t, "echo x", "x")
		theirs, err := c.Open(t, dir).Dial(t.Context(), b.id, guestboot.Port)
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		err = saver(t, e).Checkpoint(t.Context(), b.id, t.TempDir())
		if fault.KindOf(err) != fault.Conflict {
			t.Errorf("got %v, want a conflict", err)
		}
		b.want(t, "echo x", "x")
		theirs.Close()
		hosttest.Eventually(t, "it can be saved again", func() bool {
			return saver(t, e).Checkpoint(t.Context(), b.id, t.TempDir()) == nil
		})
		b.want(t, "echo x", "x")
	}},
	{"state/replaced-by-another-process-lives-on", replacedElsewhere},
	{"state/large-files-cost-no-box", largeFiles},
	{"state/a-taken-id-is-refused", func(t *testing.T, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		saved := save(t, b)
		for spare := range 2 {
			if spare == 1 {
				warm(t, c, e, 1)
			}
			spec := c.spec(b.id)
			spec.GuestConfig = renewed(b.id, "box", guest.Copied)
			if err := saver(t, e).Restore(t.Context(), spec, saved); fault.KindOf(err) != fault.Exists {
				t.Errorf("with %d spare: %v", spare, err)
			}
			b.want(t, "echo well", "well")
		}
	}},
	{"state/files-are-archived", func(t *testing.T, c *Config) {
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
		// And back: another sandbox boots with them.
		other := c.start(t, e, func(s *engine.Spec) {
			s.Archive = f
			s.GuestConfig = archived(s.ID)
		})
		other.want(t, "cat d/f; readlink d/l; stat -c '%a %U' d/f; test -p d/p && cat /etc/own; ls /etc/mime.types /usr/bin/true 2>&1 | grep -c 'No such'",
			"inside\nf\n640 user\nown\n2")
		if one, two := b.shAs(t, "root", "cat /etc/machine-id").stdout, other.shAs(t, "root", "cat /etc/machine-id").stdout; one == two {
			t.Error("the machine ID came with the files")
		}
	}},
	{"state/nothing-runs-while-files-are-extracted", extracted},
}

// extracted wants the files of a saved state as they were when it was saved,
// however busy its programs were.
func extracted(t *testing.T, c *Config) {
	e := c.Open(t, t.TempDir())
	b := c.start(t, e)
	b.sh(t, "mkdir d && echo inside > d/f")
	b.sh(t, "for n in 1 2 3; do (while :; do echo $n >> busy$n; done) >/dev/null 2>&1 & done; while ! test -s busy3; do sleep 0.01; done")
	dir := t.TempDir()
	if err := saver(t, e).Checkpoint(t.Context(), b.id, dir); err != nil {
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
			t.Errorf("%d files, then %d", len(first), len(files))
		}
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("left: %v, %v", list, err)
	}
}

// largeFiles wants that the files of a box are written down that do not fit
// into its memory, and that one that fits nowhere costs an error and not the
// box.
func largeFiles(t *testing.T, c *Config) {
	e := c.Open(t, t.TempDir())
	needs(t, e, engine.LimitMemory)
	b := c.start(t, e, func(s *engine.Spec) { s.Limits.MemoryBytes = 192 << 20 })
	archiver, f := archive(t, e)
	b.want(t, "truncate -s 600m holes && stat -c %s holes", "629145600")
	if err := archiver.Archive(t.Context(), b.id, f); err != nil {
		t.Errorf("600 MiB: %v", err)
	}
	if list := tarList(t, f); !strings.Contains(list, "home/user/holes") {
		t.Errorf("the archive has only\n%s", list)
	}
	// A box whose disk is small could fill the host's otherwise.
	if info, err := f.Stat(); err != nil || info.Size() < 600<<20 || info.Sys().(*syscall.Stat_t).Blocks*512 > 100<<20 {
		t.Errorf("holes are on the disk: %+v, %v", info, err)
	}
	b.want(t, "truncate -s 4t holes && stat -c %s holes", "4398046511104")
	if err := archiver.Archive(t.Context(), b.id, f); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("4 TiB: %v", err)
	}
	b.want(t, "stat -c %s holes", "4398046511104")
}

// counted starts a box in an engine of its own. What it returns removes the box
// and waits until no more is there than before it.
func (c *Config) counted(t testing.TB) (b *box, gone func()) {
	t.Helper()
	dir := t.TempDir()
	e := c.Open(t, dir)
	cycle(t, c, e) // the first box may make what all later ones share
	before := hosttest.Census(t, dir)
	b = c.start(t, e)
	return b, func() {
		t.Helper()
		b.client.CloseIdleConnections()
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		hosttest.EventuallyNoError(t, func() error {
			if left := hosttest.Grown(before, hosttest.Census(t, dir)); len(left) > 0 {
				return fmt.Errorf("left behind: %v", left)
			}
			return nil
		})
	}
}

// archive is the engine's ability to write files alone, and a file for them.
func archive(t testing.TB, e engine.Engine) (engine.Archiver, *os.File) {
	t.Helper()
	archiver, ok := e.(engine.Archiver)
	if !ok {
		t.Fatal("the engine archives nothing")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "files.tar"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return archiver, f
}

// damage changes a file of a saved state.
func damage(t testing.TB, dir, name string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(data), 0o600)
	}
	if err != nil {
		t.Fatal(errors.Join(errors.New("damage"), err))
	}
}

package enginetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var stateRules = []rule{
	// P25 of docs/reference/promises.md
	{"state/memory-files-and-listeners-continue", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		startListener(t, b, 8001)
		b.sh(t, "echo before > f; echo shared > /dev/shm/f")
		before := number(t, b.sh(t, get(8001)).stdout)
		dir := save(t, b)
		b.want(t, get(8001), fmt.Sprint(before+1))
		b.sh(t, "echo after > f; echo new > g; rm /dev/shm/f")
		for range 2 {
			other := c.copyOf(t, b.e, dir)
			other.want(t, "cat f /dev/shm/f; ls g 2>&1 | grep -c 'No such'", "before\nshared\n1")
			other.want(t, get(8001), fmt.Sprint(before+1))
			other.want(t, get(8001), fmt.Sprint(before+2))
		}
		b.want(t, "cat f", "after")
		b.want(t, get(8001), fmt.Sprint(before+2))
	}},
	{"state/memory-and-files-continue", memoryAndFiles},
	{"state/consists-of-its-parts", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		dir := save(t, b)
		var want []string
		large := 0 // parts that are not small
		for _, p := range saver(b.e).Parts() {
			want = append(want, p.Name)
			if p.Kind != engine.PartSmall {
				large++
			}
			info, err := os.Lstat(filepath.Join(dir, p.Name))
			if err != nil || !info.Mode().IsRegular() {
				t.Errorf("the part %s: %v, %v", p.Name, info, err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || large != 1 || len(entries) != len(want) {
			t.Errorf("a state has %v, and its parts are %v, of which %d are not small: %v", entries, want, large, err)
		}
	}},
	{"state/a-copy-is-saved-too", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		startCounter(t, b)
		before := number(t, b.sh(t, ask).stdout)
		for range 3 {
			b = c.copyOf(t, b.e, save(t, b))
			before++
			b.want(t, ask, fmt.Sprint(before))
		}
	}},
	{"state/a-removed-sandbox-is-restored-under-its-id", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		startCounter(t, b)
		before := number(t, b.sh(t, ask).stdout)
		dir := t.TempDir()
		if err := saver(e).Checkpoint(t.Context(), b.id, dir); err != nil {
			t.Fatal(err)
		}
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.Resumed)
		if err := saver(e).Restore(t.Context(), spec, dir); err != nil {
			t.Fatal(err)
		}
		again := attach(t, e, b.id)
		again.want(t, ask, fmt.Sprint(before+1))
	}},
	{"state/an-end-during-a-save-is-reported", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		started, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			for n := 0; ; n++ {
				if err := saver(e).Checkpoint(t.Context(), b.id, t.TempDir()); err != nil {
					ended <- err
					return
				}
				if n == 2 {
					close(started)
				}
			}
		}()
		select {
		case <-started:
		case err := <-ended:
			t.Fatal(err)
		}
		// The sandbox nearly always ends while a state is being saved.
		_, _ = b.exec(t.Context(), "root", "/bin/kill", "-9", "1")
		if err := <-ended; fault.KindOf(err) != fault.NotFound {
			t.Errorf("checkpoint of a sandbox that ends: got %v, want not found", err)
		}
	}},
	{"state/replaces-in-place", func(t testing.TB, c *Config) {
		b, wantNothingLeft := c.counted(t)
		startCounter(t, b)
		before := number(t, b.sh(t, ask).stdout)
		b.sh(t, "echo before > f")
		saved := save(t, b)
		b.sh(t, "echo after > f")
		for range 3 {
			spec := c.spec(b.id)
			spec.Boot.Config = renewed(b.id, "box", guest.RolledBack)
			if err := saver(b.e).Replace(t.Context(), spec, saved); err != nil {
				t.Fatal(err)
			}
			replaced := attach(t, b.e, b.id)
			replaced.want(t, "cat f; echo more >> f", "before")
			replaced.want(t, ask, fmt.Sprint(before+1))
			replaced.client.CloseIdleConnections()
		}
		wantNothingLeft()
	}},
	{"state/continues-if-it-cannot-be-replaced", func(t testing.TB, c *Config) {
		b, wantNothingLeft := c.counted(t)
		startCounter(t, b)
		saved := save(t, b)
		damage(t, saved, smallParts(b.e)[0])
		before := number(t, b.sh(t, ask).stdout)
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.RolledBack)
		if err := saver(b.e).Replace(t.Context(), spec, saved); err == nil {
			t.Fatal("a sandbox was replaced from a damaged state")
		}
		b.want(t, ask, fmt.Sprint(before+1))
		wantNothingLeft()
	}},
	{"state/truncated-is-refused", func(t testing.TB, c *Config) {
		b, wantNothingLeft := c.counted(t)
		saved := save(t, b)
		control := c.copyOf(t, b.e, saved) // the control: the state is complete
		if err := b.e.Remove(t.Context(), control.id); err != nil {
			t.Fatal(err)
		}
		for _, name := range smallParts(b.e) {
			broken := t.TempDir()
			if err := os.CopyFS(broken, os.DirFS(saved)); err != nil {
				t.Fatal(err)
			}
			damage(t, broken, name)
			id := newID()
			spec := c.spec(id)
			spec.Boot.Config = renewed(id, "box", guest.Copied)
			if err := saver(b.e).Restore(t.Context(), spec, broken); err == nil {
				t.Errorf("a state with a truncated %s was restored", name)
				_ = b.e.Remove(t.Context(), id)
			}
		}
		wantNothingLeft()
	}},
	{"state/unknown-is-not-found", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		if err := saver(e).Checkpoint(t.Context(), "missing", t.TempDir()); fault.KindOf(err) != fault.NotFound {
			t.Errorf("checkpoint: %v", err)
		}
		spec := c.spec("missing")
		if err := saver(e).Replace(t.Context(), spec, t.TempDir()); fault.KindOf(err) != fault.NotFound {
			t.Errorf("replace: %v", err)
		}
	}},
	{"state/streams-of-another-process-prevent-a-save", func(t testing.TB, c *Config) {
		dir := t.TempDir()
		e := c.Open(t, dir)
		b := c.start(t, e)
		b.want(t, "echo x", "x")
		stream, err := c.Open(t, dir).Dial(t.Context(), b.id, guestboot.Port)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		// An engine that cannot save a sandbox with such streams returns a conflict, and the
		// sandbox continues.
		if err := saver(e).Checkpoint(t.Context(), b.id, t.TempDir()); err != nil && fault.KindOf(err) != fault.Conflict {
			t.Errorf("checkpoint with a stream of another process: got %v, want a conflict or a saved state", err)
		}
		b.want(t, "echo x", "x")
		stream.Close()
		hosttest.Eventually(t, "the sandbox can be saved again", func() bool {
			return saver(e).Checkpoint(t.Context(), b.id, t.TempDir()) == nil
		})
		b.want(t, "echo x", "x")
	}},
	{"state/survives-replacement-by-another-process", replacedByOtherProcess},
	{"state/a-used-id-is-refused", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		saved := save(t, b)
		spec := c.spec(b.id)
		spec.Boot.Config = renewed(b.id, "box", guest.Copied)
		if err := saver(e).Restore(t.Context(), spec, saved); fault.KindOf(err) != fault.Exists {
			t.Errorf("restore with a used ID: got %v, want exists", err)
		}
		b.want(t, "echo well", "well")
	}},
}

// counted starts a sandbox in a new engine. The returned function removes the sandbox and waits
// until no more resources exist than before.
func (c *Config) counted(t testing.TB) (b *testSandbox, wantNothingLeft func()) {
	t.Helper()
	dir := t.TempDir()
	e := c.Open(t, dir)
	cycle(t, c, e) // the first sandbox may create files that all later ones share
	before := c.count(t, dir)
	b = c.start(t, e)
	return b, func() {
		t.Helper()
		b.client.CloseIdleConnections()
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		hosttest.EventuallyNoError(t, func() error {
			if left := hosttest.Grown(before, c.count(t, dir)); len(left) > 0 {
				return fmt.Errorf("left behind: %v", left)
			}
			return nil
		})
	}
}

// damage truncates a file of a saved state to its first half.
func damage(t testing.TB, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, data[:len(data)/2], 0o600)
	}
	if err != nil {
		t.Fatal(errors.Join(errors.New("damage"), err))
	}
}

// memoryAndFiles checks that a copy has the memory and files of its source at the time of the save,
// and that each continues independently.
func memoryAndFiles(t testing.TB, c *Config) {
	b := c.start(t, c.Open(t, t.TempDir()))
	startCounter(t, b)
	b.sh(t, "echo before > f")
	before := number(t, b.sh(t, ask).stdout)
	dir := save(t, b)
	b.want(t, ask, fmt.Sprint(before+1))
	b.sh(t, "echo after > f; echo new > g")
	for range 2 {
		other := c.copyOf(t, b.e, dir)
		other.want(t, "cat f; test -e g || echo none", "before\nnone")
		other.want(t, ask, fmt.Sprint(before+1))
		other.want(t, ask, fmt.Sprint(before+2))
	}
	b.want(t, "cat f", "after")
	b.want(t, ask, fmt.Sprint(before+2))
}

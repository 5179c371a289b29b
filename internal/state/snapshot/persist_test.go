package snapshot

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// rebooted opens images as the first process after a reboot does.
func rebooted(t *testing.T, s *Images) *Images {
	t.Helper()
	next := open(t, s.dir, Options{Budget: 1 << 30})
	next.boot = "another"
	return next
}

// An image that a short-lived process has committed is whole after a reboot, without a pack: only
// long-lived processes pack.
func TestPersistedImagesOutliveAReboot(t *testing.T) {
	s := newImages(t)
	pages := noise(1, 200)
	a := commit(t, s, "a", "", pages)
	b := commit(t, s, "b", "a", noise(2, 300))
	_, err := load(t.Context(), rebooted(t, s), "a", a.Sum)
	wantCode(t, err, fault.Invalid, "snapshot_damaged") // without Persist, the image is lost
	for range 2 {
		if err := s.Persist(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.notes.sums) > 0 || len(packs(t, s)) > 0 {
		t.Errorf("got %d sums of incomplete images and the packs %v, want none of either", len(s.notes.sums), packs(t, s))
	}
	next := rebooted(t, s)
	wantPages(t, next, a, pages)
	wantPages(t, next, b, noise(2, 300))
	// A long-lived process completes the work.
	deduplicate(t, next)
	if len(packs(t, next)) == 0 {
		t.Error("Deduplicate made no pack of a persisted image")
	}
	wantPages(t, next, a, pages)
}

// The next process persists the images that a killed process has left, if their sums are known.
// Damaged and unknown images do not prevent it.
func TestPersistCompletesImagesOfOtherProcesses(t *testing.T) {
	s := newImages(t)
	a := commit(t, s, "a", "", noise(1, 200))
	commit(t, s, "stranger", "", noise(2, 10))
	changed := commit(t, s, "changed", "", noise(3, 10))
	put(t, filepath.Join(s.dir, imagePath("changed", PagesFile)), noise(4, 10))
	next := open(t, s.dir, Options{Budget: 1 << 30, Sum: rows{"a": a.Sum, "changed": changed.Sum}.find})
	if err := next.Persist(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPages(t, rebooted(t, s), a, noise(1, 200))
}

// If the context has ended, Persist fails only if images of its own process remain. No image is
// lost.
func TestPersistReportsOnlyOwnImagesWhenCanceled(t *testing.T) {
	s := newImages(t)
	a := commit(t, s, "a", "", noise(1, 200))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Persist(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("Persist of own images: got %v, want Canceled", err)
	}
	next := open(t, s.dir, Options{Budget: 1 << 30, Sum: rows{"a": a.Sum}.find})
	if err := next.Persist(canceled); err != nil {
		t.Errorf("Persist of images of another process: got %v, want nil", err)
	}
	if err := next.Persist(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantPages(t, rebooted(t, s), a, noise(1, 200))
}

// If two processes persist an image, the slower one finds it complete, and its file of pages with a
// second hard link in a pack. Persist must not report that as damage.
func TestPersistToleratesConcurrentProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	var duringSync func()
	s := open(t, dir, Options{Budget: 1 << 30, step: func(name string) {
		if do := duringSync; name == "finish: sync files" && do != nil {
			duringSync = nil
			do()
		}
	}})
	a := commit(t, s, "a", "", noise(1, 200))
	duringSync = func() { deduplicate(t, open(t, dir, Options{Budget: 1 << 30, Sum: rows{"a": a.Sum}.find})) }
	if err := s.Persist(t.Context()); err != nil || duringSync != nil {
		t.Fatalf("Persist: error %v, the other process ran: %t", err, duringSync == nil)
	}
	if s.notes.warned["a"] {
		t.Error("Persist reported the image as damaged")
	}
	wantPages(t, rebooted(t, s), a, noise(1, 200))
}

func BenchmarkPersist100MB(b *testing.B) {
	s, pages := bench(b), noise(1, 100<<8)
	for b.Loop() {
		b.StopTimer()
		img, err := newDraft(b, s, "a", pages).Commit(b.Context(), "", memoryParts)
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := s.Persist(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Remove(b.Context(), img.ID); err != nil {
			b.Fatal(err)
		}
		s.drain()
		b.StartTimer()
	}
}

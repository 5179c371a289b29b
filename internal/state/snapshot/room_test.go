package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// written begins a draft and writes the files of an engine.
func written(t *testing.T, s *Images, id string, pages []byte) *Draft {
	t.Helper()
	d, err := s.Begin(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{StateFile, MetaFile} {
		put(t, filepath.Join(d.Dir(), f), []byte("data"))
	}
	put(t, filepath.Join(d.Dir(), PagesFile), pages)
	return d
}

// wantRoom fails the test if images take more than they may, or if room is reserved that no draft
// uses.
func wantRoom(t *testing.T, s *Images) {
	t.Helper()
	if used, err := s.measure(); err != nil || used > s.space.budget || s.space.claimed != 0 {
		t.Errorf("got %d bytes used of %d, %d claimed, error %v, want none claimed", used, s.space.budget, s.space.claimed, err)
	}
}

// If two images are committed at once and only one fits, the other is refused, and its reservation
// is released.
func TestConcurrentCommitsStayWithinBudget(t *testing.T) {
	const one = 200 * pageBytes
	var meanwhile func()
	s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: one + one/2, step: func(name string) {
		if do := meanwhile; name == "commit: rename" && do != nil {
			meanwhile = nil
			do()
		}
	}})
	a, b := written(t, s, "a", noise(1, 200)), written(t, s, "b", noise(2, 200))
	meanwhile = func() {
		_, err := b.Commit(t.Context(), "", memoryParts)
		wantCode(t, err, fault.Exhausted, "snapshot_budget")
	}
	if _, err := a.Commit(t.Context(), "", memoryParts); err != nil {
		t.Fatal(err)
	}
	wantRoom(t, s)
	// A commit that fails for another reason releases its reservation.
	c := written(t, s, "c", noise(3, 10))
	if err := os.Mkdir(filepath.Join(s.dir, imagePath("c")), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(s.dir, imagePath("c"), "in the way"), nil)
	_, err := c.Commit(t.Context(), "", memoryParts)
	wantCode(t, err, fault.Exists, "snapshot_exists")
	wantRoom(t, s)
}

// The counted size is the real size, also if it is measured during changes.
func TestMeasureDuringChanges(t *testing.T) {
	s := newImages(t)
	commit(t, s, "a", "", noise(1, 10))
	one, err := s.measure()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan bool)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.measure()
			}
		}
	})
	defer group.Wait()
	defer close(stop)
	var sizes [2]int64 // without the image and with it
	for i := range 200 {
		commit(t, s, "b", "", noise(1, 10))
		sizes[1] = s.space.used.Load()
		if err := s.Remove(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		sizes[0] = s.space.used.Load()
		if want := [2]int64{one, 2 * one}; sizes != want {
			t.Fatalf("after %d rounds: got %d bytes counted, want %d", i, sizes, want)
		}
	}
}

// Space that only a removed image used is given to the next, also if a pack has it together with
// pages that are needed, and before any copy is removed.
func TestSpaceOfRemovedPagesIsReused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 320 * pageBytes})
	pages := noise(1, 200)
	commit(t, s, "a", "", pages)
	b := commit(t, s, "b", "a", pages[:10*pageBytes])
	deduplicate(t, s)
	if err := s.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	s.drain()
	if used, err := s.measure(); err != nil || used < 200*pageBytes {
		t.Fatalf("got %d bytes after the removal, error %v, want the space of the removed pages still in use", used, err)
	}
	commit(t, s, "c", "", noise(7, 250))
	if !s.has(imagePath("b", PagesFile)) {
		t.Error("a copy was removed, although removed images still took space")
	}
	wantPages(t, s, b, pages[:10*pageBytes])
	wantRoom(t, s)
}

// The error of a refused commit contains the space that would have been needed.
func TestRejectionStatesTheMissingSpace(t *testing.T) {
	const mib = 1 << 20 / pageBytes
	s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 4 << 20})
	commit(t, s, "a", "", noise(1, 2*mib))
	_, err := written(t, s, "b", noise(2, 4*mib)).Commit(t.Context(), "", memoryParts)
	wantCode(t, err, fault.Exhausted, "snapshot_budget")
	// Each of the two images has some kilobytes in addition to its pages.
	want := "snapshots take 2 MiB of the 4 MiB that they may, and this one takes 5 MiB: 3 MiB too many"
	if got := fault.PublicText(err); got != want {
		t.Errorf("error text: got %q, want %q", got, want)
	}
	commit(t, s, "b", "", noise(2, 2*mib-64))
	s.space.budget = 3 << 20
	_, err = s.Begin("c")
	wantCode(t, err, fault.Exhausted, "snapshot_budget")
	if got, want := fault.PublicText(err), "snapshots take 3 MiB of the 3 MiB that they may"; got != want {
		t.Errorf("error text: got %q, want %q", got, want)
	}
}

// A draft that is being written counts when another is begun, in this process and in others, but
// not when the draft itself is committed. A dropped draft no longer counts.
func TestDraftsCount(t *testing.T) {
	const one = 200 * pageBytes
	dir := filepath.Join(t.TempDir(), "snapshots")
	s, other := open(t, dir, Options{Budget: 2 * one}), open(t, dir, Options{Budget: 2 * one})
	a, b := written(t, s, "a", noise(1, 150)), written(t, other, "b", noise(2, 250))
	for _, s := range []*Images{s, other} {
		_, err := s.Begin("c")
		wantCode(t, err, fault.Exhausted, "snapshot_budget")
		want := "snapshots take 0 MiB of the 1 MiB that they may, and 2 MiB are being written"
		if got := fault.PublicText(err); got != want {
			t.Errorf("error text: got %q, want %q", got, want)
		}
	}
	if _, err := a.Commit(t.Context(), "", memoryParts); err != nil {
		t.Fatal(err)
	}
	if err := b.Abort(); err != nil {
		t.Fatal(err)
	}
	other.drain()
	if _, err := written(t, s, "c", noise(3, 200)).Commit(t.Context(), "", memoryParts); err != nil {
		t.Fatal(err)
	}
	wantRoom(t, s)
}

// A draft of an ended process is removed to free space.
func TestDraftsOfDeadProcessesAreRemoved(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 200 * pageBytes})
	for range 3 {
		d := written(t, s, "a", noise(1, 250))
		if err := d.dir.Close(); err != nil { // this releases its lock, as the end of a process does
			t.Fatal(err)
		}
	}
}

// Files that are being removed are among the drafts and do not count.
func TestRemovedImagesDoNotCount(t *testing.T) {
	goOn := make(chan bool)
	s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 1 << 30, step: func(name string) {
		if name == "remove: files" {
			<-goOn
		}
	}})
	commit(t, s, "a", "", noise(1, 10))
	d := written(t, s, "b", noise(2, 10))
	if err := errors.Join(s.Remove(t.Context(), "a"), d.Abort()); err != nil {
		t.Error(err)
	}
	if n, err := s.draftBytes(); err != nil || n != 0 {
		t.Errorf("draftBytes: got %d, error %v, want 0", n, err)
	}
	close(goOn)
}

// Incomplete images take several times their final size. That alone does not make the next draft
// fail.
func TestImagesAreDeduplicatedForNewDrafts(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 450 * pageBytes})
	pages := noise(1, 100)
	parent := ""
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		pages = append(pages[:99*pageBytes:99*pageBytes], noise(uint64(id[0]), 1)...)
		image := commit(t, s, id, parent, pages)
		wantPages(t, s, image, pages)
		parent = id
	}
	wantRoom(t, s)
	freed, err := s.Deduplicate(t.Context())
	if err != nil || freed == 0 {
		t.Errorf("first Deduplicate: freed %d bytes, error %v, want some", freed, err)
	}
	if freed, err = s.Deduplicate(t.Context()); err != nil || freed != 0 {
		t.Errorf("second Deduplicate: freed %d bytes, error %v, want none", freed, err)
	}
}

// With a used-up budget, a save waits only for a limited time while other work completes images.
func TestMakeRoomWaitIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, filepath.Join(t.TempDir(), "snapshots"), Options{Budget: 20 * pageBytes})
		commit(t, s, "a", "", noise(1, 10))
		s.deduplicating.Lock()
		defer s.deduplicating.Unlock()
		started := time.Now()
		err := s.makeRoom(30*pageBytes, 0)
		if took := time.Since(started); fault.CodeOf(err) != "snapshot_budget" || took < deduplicateTimeout || took > deduplicateTimeout+time.Second {
			t.Errorf("makeRoom: got %v after %v, want snapshot_budget after %v", err, took, deduplicateTimeout)
		}
	})
}

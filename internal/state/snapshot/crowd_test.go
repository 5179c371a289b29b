package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// descriptors lists the files below a directory that this process has open.
func descriptors(t *testing.T, dir string) (open []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.HasPrefix(to, dir) {
			open = append(open, to)
		}
	}
	return open
}

// Leases, removals, completion, rebuilding and pruning run at once, as in two processes. Every
// lease gets a whole image, and no file is left open.
func TestConcurrentOperationsKeepImages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	s := open(t, dir, Options{Budget: 1 << 30})
	other := open(t, dir, Options{Budget: 1 << 30})
	images, pages := chain(t, s, 6, 200, 20)
	rest := descriptors(t, dir)
	if len(rest) != 2 {
		t.Fatalf("files open before the work: %v, want two", rest)
	}
	ctx := t.Context()
	var crowd, background sync.WaitGroup
	stop := make(chan struct{})
	repeat := func(f func() error) {
		background.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	repeat(func() error { _, err := s.Deduplicate(ctx); return err })
	repeat(func() error { _, err := other.Deduplicate(ctx); return err })
	repeat(func() error { return s.evict(1 << 60) })
	repeat(func() error {
		_, err := other.Prune(ctx, func(string) bool { return true })
		return err
	})
	repeat(func() error { _, err := s.Sizes(ctx); return err })
	for g := range 4 {
		from := []*Images{s, other}[g%2]
		crowd.Go(func() {
			for n := range 40 {
				i := (n + g) % 3 * 2
				got, err := load(ctx, from, images[i].ID, images[i].Sum)
				if i == 2 && fault.KindOf(err) == fault.NotFound {
					continue // it is being removed
				}
				if err != nil || !bytes.Equal(got, pages[i]) {
					t.Errorf("load of %s: got error %v or other pages", images[i].ID, err)
					return
				}
			}
		})
	}
	crowd.Go(func() {
		for _, i := range []int{1, 2, 3} {
			if err := s.Remove(ctx, images[i].ID); err != nil {
				t.Error(err)
			}
		}
		for n := range 10 {
			data := noise(uint64(50+n), 40)
			d, err := other.Begin(fmt.Sprint("n", n))
			if err != nil {
				t.Error(err)
				return
			}
			for name, b := range map[string][]byte{StateFile: nil, MetaFile: nil, PagesFile: data} {
				if err := os.WriteFile(filepath.Join(d.Dir(), name), b, 0o600); err != nil {
					t.Error(err)
				}
			}
			img, err := d.Commit(ctx, images[5].ID, memoryParts)
			if err != nil {
				t.Error(err)
				return
			}
			got, err := load(ctx, s, img.ID, img.Sum)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("load of %s: got error %v or other pages", img.ID, err)
			}
			if err := s.Remove(ctx, img.ID); err != nil {
				t.Error(err)
			}
		}
	})
	crowd.Wait()
	close(stop)
	background.Wait()
	for _, i := range []int{0, 4, 5} {
		wantPages(t, s, images[i], pages[i])
	}
	s.drain()
	other.drain()
	if left := descriptors(t, dir); len(left) != len(rest) {
		t.Errorf("files still open: %v", left)
	}
	if left, _ := os.ReadDir(filepath.Join(dir, draftsDir)); len(left) != 0 {
		t.Errorf("drafts left: %v", left)
	}
}

// Errors close the opened files, too.
func TestErrorsCloseFiles(t *testing.T) {
	s, images, _ := pair(t)
	deduplicate(t, s)
	rest := len(descriptors(t, s.dir))
	for _, file := range []string{manifestFile, StateFile, PagesFile, indexFile} {
		dropCopies(t, s)
		path := filepath.Join(s.dir, imagePath("b", file))
		if file == PagesFile {
			path = packs(t, s)[0]
		}
		whole := contents(t, path)
		damage(t, "truncated", path, "")
		for range 3 {
			if _, err := load(t.Context(), s, "b", images[1].Sum); fault.CodeOf(err) != "snapshot_damaged" && file != PagesFile {
				t.Errorf("load with a truncated %s: got %v, want snapshot_damaged", file, err)
			}
		}
		put(t, path, whole)
	}
	d, err := s.Begin("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Commit(t.Context(), "", memoryParts); err == nil {
		t.Error("an empty draft was committed")
	}
	if _, err := s.Begin("b"); err == nil {
		t.Error("Begin accepted the ID of an existing image")
	}
	s.drain()
	if got := descriptors(t, s.dir); len(got) != rest {
		t.Errorf("files still open: %v", got)
	}
}

// A lease of any process keeps files where they are.
func TestALeaseHoldsItsFiles(t *testing.T) {
	s := newImages(t)
	images, _ := chain(t, s, 2, 100, 10)
	deduplicate(t, s)
	other := open(t, s.dir, Options{Budget: 1 << 30})
	l, err := other.Lease(t.Context(), images[1].ID, images[1].Sum)
	if err != nil {
		t.Fatal(err)
	}
	dropCopies(t, s)
	if !s.has(imagePath(images[1].ID, PagesFile)) {
		t.Error("a leased copy was dropped")
	}
	_, err = s.lockImage(t.Context(), images[1].ID, unix.LOCK_EX, false)
	if !errors.Is(err, errBusy) {
		t.Errorf("exclusive lock of a leased image: got %v, want errBusy", err)
	}
	second, err := s.Lease(t.Context(), images[1].ID, images[1].Sum)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Release(), l.Release(), second.Release()); err != nil {
		t.Error(err)
	}
	dropCopies(t, s)
	if s.has(imagePath(images[1].ID, PagesFile)) {
		t.Error("the copy is still there")
	}
}

// A lease of an image that is removed while the lease waits returns NotFound, not damage.
func TestWaitingForARemovedImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImages(t)
		img := commit(t, s, "a", "", noise(1, 2))
		d, err := s.lockImage(t.Context(), "a", unix.LOCK_EX, false)
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		go func() {
			_, err := s.Lease(t.Context(), "a", img.Sum)
			got <- err
		}()
		synctest.Wait()
		if err := s.root.RemoveAll(imagePath("a")); err != nil {
			t.Fatal(err)
		}
		d.Close()
		wantCode(t, <-got, fault.NotFound, "snapshot_not_found")
	})
}

// A removal gives up if a lease is not released.
func TestAnImageInUseIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newImages(t)
		img := commit(t, s, "a", "", noise(1, 2))
		l, err := s.Lease(t.Context(), "a", img.Sum)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(t, s.Remove(t.Context(), "a"), fault.Conflict, "snapshot_in_use")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantCode(t, s.Remove(ctx, "a"), fault.Timeout, "timeout")
		if err := errors.Join(l.Verify(t.Context()), l.Release(), s.Remove(t.Context(), "a")); err != nil {
			t.Error(err)
		}
		s.drain()
	})
}

package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// chain commits n images, each of which changes some pages of the previous one.
func chain(t *testing.T, s *Images, n, pages, change int) ([]Image, [][]byte) {
	t.Helper()
	var images []Image
	var all [][]byte
	parent, data := "", noise(1, pages)
	for i := range n {
		if i > 0 {
			data = slices.Clone(data)
			copy(data[(i*37%(pages-change))*pageBytes:], noise(uint64(i+10), change))
		}
		img := commit(t, s, fmt.Sprintf("s%d", i), parent, data)
		images, all, parent = append(images, img), append(all, data), img.ID
	}
	return images, all
}

func disk(t *testing.T, s *Images) int64 {
	t.Helper()
	s.drain()
	n, err := s.measure()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestChainSharesPages(t *testing.T) {
	s := newImages(t)
	images, pages := chain(t, s, 10, 2000, 20)
	one := int64(len(pages[0]))
	if before := disk(t, s); before < 10*one {
		t.Fatalf("ten flat images take %d bytes", before)
	}
	deduplicate(t, s)
	dropCopies(t, s)
	got := disk(t, s)
	t.Logf("one %d KiB, ten %d KiB", one>>10, got>>10)
	// Nine times 20 pages, and small files.
	if limit := one + 9*20*pageBytes + 10*10*pageBytes; got > limit {
		t.Errorf("ten images take %d bytes, want at most %d", got, limit)
	}
	for i := range images {
		wantPages(t, s, images[i], pages[i])
	}
	dropCopies(t, s)
	sizes, err := s.Sizes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range images[1:] {
		if z := sizes[img.ID]; z.Bytes != img.Bytes || z.Own > 30*pageBytes || !z.Durable {
			t.Errorf("size of %s: got %+v, want at most 30 pages of its own", img.ID, z)
		}
	}
}

func TestZeroPagesUseNoSpace(t *testing.T) {
	s := newImages(t)
	data := make([]byte, 1000*pageBytes)
	copy(data[500*pageBytes:], noise(1, 10))
	a := commit(t, s, "a", "", data)
	b := commit(t, s, "b", "a", append(slices.Clone(data), make([]byte, 500*pageBytes)...))
	deduplicate(t, s)
	dropCopies(t, s)
	if got := disk(t, s); got > 30*pageBytes {
		t.Errorf("images of zeros take %d KiB", got>>10)
	}
	wantPages(t, s, a, data)
	wantPages(t, s, b, append(slices.Clone(data), make([]byte, 500*pageBytes)...))
	if got := disk(t, s); got > 60*pageBytes {
		t.Errorf("rebuilt images of zeros take %d KiB", got>>10)
	}
}

func TestRemovingAnAncestorKeepsSharedPages(t *testing.T) {
	for _, gone := range [][]int{{0}, {2}, {4}, {0, 1, 2}, {1, 3}, {3, 2, 1, 0}} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			t.Parallel()
			s := newImages(t)
			images, pages := chain(t, s, 5, 500, 100)
			deduplicate(t, s)
			dropCopies(t, s)
			for _, i := range gone {
				if err := s.Remove(t.Context(), images[i].ID); err != nil {
					t.Fatal(err)
				}
			}
			before := disk(t, s)
			freed, err := s.Prune(t.Context(), func(string) bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			after := disk(t, s)
			if freed != before-after {
				t.Errorf("Prune: freed %d bytes, but the disk use went from %d to %d", freed, before, after)
			}
			for i := range images {
				if !slices.Contains(gone, i) {
					wantPages(t, s, images[i], pages[i])
				}
			}
			// The remaining size is that of the needed pages, and little more.
			dropCopies(t, s)
			need := map[string]bool{}
			for i := range images {
				if slices.Contains(gone, i) {
					continue
				}
				for p := range slices.Chunk(pages[i], pageBytes) {
					need[string(p)] = true
				}
			}
			slack := int64(leafBytes + 20*pageBytes) // for each pack and its files
			if limit := int64(len(need))*pageBytes + 5*slack; disk(t, s) > limit {
				t.Errorf("remaining images take %d KiB, want at most %d", disk(t, s)>>10, limit>>10)
			}
			if freed == 0 && slices.Equal(gone, []int{3, 2, 1, 0}) {
				t.Error("nothing was freed")
			}
			for _, img := range images {
				s.Remove(t.Context(), img.ID)
			}
			if left := packs(t, s); len(left) != 0 || disk(t, s) != 0 {
				t.Errorf("after removing all images: packs %v, %d bytes are left", left, disk(t, s))
			}
		})
	}
}

// Pages that a prune has removed are not shared any more.
func TestChildOfThinnedLineageIsComplete(t *testing.T) {
	s := newImages(t)
	images, pages := chain(t, s, 2, 600, 300)
	deduplicate(t, s)
	if err := s.Remove(t.Context(), images[0].ID); err != nil {
		t.Fatal(err)
	}
	if freed, err := s.Prune(t.Context(), func(string) bool { return true }); err != nil || freed == 0 {
		t.Fatalf("Prune: freed %d bytes, error %v, want some", freed, err)
	}
	// The child again contains the pages that only the removed image had.
	child := commit(t, s, "child", images[1].ID, pages[0])
	deduplicate(t, s)
	dropCopies(t, s)
	wantPages(t, s, child, pages[0])
	wantPages(t, s, images[1], pages[1])
}

// A kernel continues to read from a removed image.
func TestOpenPacksAreNotThinned(t *testing.T) {
	s := newImages(t)
	images, pages := chain(t, s, 2, 600, 300)
	read, err := os.Open(filepath.Join(s.dir, imagePath(images[0].ID, PagesFile)))
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	deduplicate(t, s)
	if err := s.Remove(t.Context(), images[0].ID); err != nil {
		t.Fatal(err)
	}
	prune := func() int64 {
		freed, err := s.Prune(t.Context(), func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return freed
	}
	if freed := prune(); freed >= 100*pageBytes {
		t.Errorf("freed %d bytes that are being read", freed)
	}
	if got, err := io.ReadAll(read); err != nil || !bytes.Equal(got, pages[0]) {
		t.Errorf("the reader got other pages or error %v", err)
	}
	read.Close()
	if freed := prune(); freed < 100*pageBytes {
		t.Errorf("freed %d bytes without a reader", freed)
	}
	wantPages(t, s, images[1], pages[1])
}

// A prune during packing removes pages that were found before.
func TestPackingAndPruningAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	other := open(t, dir, Options{Budget: 1 << 30})
	// A process that packs has the pages open, which prevents a prune. Here no process does.
	other.read = func(*os.File) (bool, error) { return false, nil }
	pruned := int64(0)
	s := open(t, dir, Options{Budget: 1 << 30, step: func(name string) {
		if name != "pack: index" || other.has(imagePath("s0")) || pruned > 0 {
			return
		}
		var err error
		if pruned, err = other.Prune(context.Background(), func(string) bool { return true }); err != nil {
			t.Error(err)
		}
	}})
	images, pages := chain(t, s, 2, 600, 300)
	deduplicate(t, s)
	if err := s.Remove(t.Context(), images[0].ID); err != nil {
		t.Fatal(err)
	}
	s.drain()
	child := commit(t, s, "child", images[1].ID, pages[0])
	deduplicate(t, s)
	if pruned == 0 {
		t.Fatal("nothing was pruned while pages were packed")
	}
	dropCopies(t, s)
	wantPages(t, s, child, pages[0])
	deduplicate(t, s)
	dropCopies(t, s)
	if s.has(imagePath("child", PagesFile)) {
		t.Error("the child was never packed")
	}
	wantPages(t, s, child, pages[0])
}

// A pack that is damaged gets no new dependants.
func TestADamagedPageIsNotShared(t *testing.T) {
	s := newImages(t)
	data := noise(1, 100)
	commit(t, s, "a", "", data)
	deduplicate(t, s)
	path := packs(t, s)[0]
	damage(t, "one bit", path, "")
	child := commit(t, s, "b", "a", data)
	deduplicate(t, s)
	dropCopies(t, s)
	wantPages(t, s, child, data)
}

func TestPrune(t *testing.T) {
	s := newImages(t)
	images, pages := chain(t, s, 3, 300, 50)
	deduplicate(t, s)
	l, err := s.Lease(t.Context(), images[0].ID, images[0].Sum)
	if err != nil {
		t.Fatal(err)
	}
	wait, kept := make(chan struct{}), 0
	go func() {
		// Prune waits a while for the lease.
		time.Sleep(20 * time.Millisecond)
		l.Release()
		close(wait)
	}()
	if _, err := s.Prune(t.Context(), func(id string) bool { kept++; return id == images[1].ID }); err != nil {
		t.Fatal(err)
	}
	<-wait
	if ids, _ := s.list(); !slices.Equal(ids, []string{images[1].ID}) || kept != 3 {
		t.Errorf("Prune: left %v after %d calls of keep, want one image after 3", ids, kept)
	}
	wantPages(t, s, images[1], pages[1])
}

// While an index cannot be read, it is unknown which pages it needs.
func TestNothingIsCollectedBesideABrokenIndex(t *testing.T) {
	s := newImages(t)
	images, _ := chain(t, s, 3, 300, 50)
	deduplicate(t, s)
	before := packs(t, s)
	path := filepath.Join(s.dir, imagePath(images[2].ID, indexFile))
	whole := contents(t, path)
	damage(t, "one bit", path, "")
	if err := s.Remove(t.Context(), images[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), images[1].ID); err != nil {
		t.Fatal(err)
	}
	if after := packs(t, s); !slices.Equal(after, before) {
		t.Errorf("packs: got %v, want %v unchanged", after, before)
	}
	put(t, path, whole)
	dropCopies(t, s)
	if _, err := load(t.Context(), s, images[2].ID, images[2].Sum); err != nil {
		t.Error(err)
	}
}

// The copies that were used last stay.
func TestCopiesStayWithinTheirShareByLeastRecentUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snapshots")
	const one = 500 * pageBytes
	clock := time.Now()
	s := open(t, dir, Options{Budget: 4 * (3*one + one/2), now: func() time.Time { clock = clock.Add(time.Second); return clock }})
	images, pages := chain(t, s, 6, 500, 5)
	for _, i := range []int{1, 5, 4, 3, 2, 1} {
		wantPages(t, s, images[i], pages[i])
	}
	deduplicate(t, s)
	for i, want := range []bool{true, true, true, true, false, false} {
		if has := s.has(imagePath(images[i].ID, PagesFile)); has != want {
			t.Errorf("%s has a copy: got %v, want %v", images[i].ID, has, want)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, imagePath("s1", PagesFile))); err != nil || !bytes.Equal(got, pages[1]) {
		t.Errorf("the copy of s1: got error %v or other pages", err)
	}
}

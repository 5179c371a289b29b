package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// newDraft returns a draft with the files that an engine would write.
func newDraft(b *testing.B, s *Images, id string, pages []byte) *Draft {
	b.Helper()
	d, err := s.Begin(id)
	if err != nil {
		b.Fatal(err)
	}
	put(b, filepath.Join(d.Dir(), StateFile), make([]byte, 600<<10))
	put(b, filepath.Join(d.Dir(), MetaFile), make([]byte, 20<<10))
	put(b, filepath.Join(d.Dir(), PagesFile), pages)
	return d
}

func bench(b *testing.B) *Images {
	return open(b, filepath.Join(b.TempDir(), "snapshots"), Options{Budget: 16 << 30})
}

func BenchmarkBeginCommit30MB(b *testing.B) {
	s, pages := bench(b), noise(1, 30<<8)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id := fmt.Sprint("s", i)
		d := newDraft(b, s, id, pages)
		b.StartTimer()
		if _, err := d.Commit(b.Context(), "", memoryParts); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Remove(b.Context(), id); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkLeaseVerify30MB leases and verifies an image that is not complete yet, a complete one
// that was not read before, and one that was.
func BenchmarkLeaseVerify30MB(b *testing.B) {
	for _, form := range []string{"committed", "complete, first read", "complete, read again"} {
		b.Run(form, func(b *testing.B) {
			s := bench(b)
			img, err := newDraft(b, s, "a", noise(1, 30<<8)).Commit(b.Context(), "", memoryParts)
			if err != nil {
				b.Fatal(err)
			}
			if form != "committed" {
				if _, err := s.Deduplicate(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				if form == "complete, first read" {
					clear(s.known.seen)
				}
				l, err := s.Lease(b.Context(), "a", img.Sum)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Verify(b.Context()); err != nil {
					b.Fatal(err)
				}
				l.Release()
			}
		})
	}
}

func BenchmarkDeduplicate30MB(b *testing.B) {
	for _, child := range []bool{false, true} {
		b.Run(fmt.Sprintf("child=%v", child), func(b *testing.B) {
			s, pages := bench(b), noise(1, 30<<8)
			parent := ""
			if child {
				parent = "parent"
				if _, err := newDraft(b, s, parent, pages).Commit(b.Context(), "", memoryParts); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Deduplicate(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				id := fmt.Sprint("s", i)
				if _, err := newDraft(b, s, id, pages).Commit(b.Context(), parent, memoryParts); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if _, err := s.Deduplicate(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := s.Remove(b.Context(), id); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

func BenchmarkRebuild(b *testing.B) {
	for _, mb := range []int{30, 500} {
		b.Run(fmt.Sprint(mb, "MB"), func(b *testing.B) {
			s, pages := bench(b), noise(1, mb<<8)
			if _, err := newDraft(b, s, "a", pages).Commit(b.Context(), "", memoryParts); err != nil {
				b.Fatal(err)
			}
			copy(pages[100*pageBytes:], noise(2, 256))
			img, err := newDraft(b, s, "b", pages).Commit(b.Context(), "a", memoryParts)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := s.Deduplicate(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(pages)))
			for b.Loop() {
				b.StopTimer()
				if err := s.evict(1 << 60); err != nil || s.has(imagePath("b", PagesFile)) {
					b.Fatal("the copy is still there", err)
				}
				b.StartTimer()
				l, err := s.Lease(b.Context(), "b", img.Sum)
				if err != nil {
					b.Fatal(err)
				}
				l.Release()
			}
		})
	}
}

func BenchmarkTree30MB(b *testing.B) {
	path := filepath.Join(b.TempDir(), "pages")
	put(b, path, noise(1, 30<<8))
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.SetBytes(30 << 20)
	for b.Loop() {
		if _, err := treeOf(b.Context(), f, 30<<20, noProgress); err != nil {
			b.Fatal(err)
		}
	}
}

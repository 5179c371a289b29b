package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// damages are the ways in which a file can be damaged. Each keeps the modification time, as an
// attacker would.
var damages = map[string]func(t *testing.T, path, other string){
	"one bit": func(t *testing.T, path, _ string) {
		b := contents(t, path)
		b[len(b)/2] ^= 1
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	},
	"truncated": func(t *testing.T, path, _ string) {
		if err := os.Truncate(path, int64(len(contents(t, path))/2)); err != nil {
			t.Fatal(err)
		}
	},
	"longer": func(t *testing.T, path, _ string) {
		if err := os.Truncate(path, int64(len(contents(t, path))+pageBytes)); err != nil {
			t.Fatal(err)
		}
	},
	"empty": func(t *testing.T, path, _ string) {
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
	},
	"missing": func(t *testing.T, path, _ string) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	},
	"exchanged": func(t *testing.T, path, other string) {
		b := contents(t, other)
		os.Remove(path)
		put(t, path, b)
	},
	"a link": func(t *testing.T, path, other string) {
		os.Remove(path)
		if err := os.Symlink(other, path); err != nil {
			t.Fatal(err)
		}
	},
	"a pipe": func(t *testing.T, path, _ string) {
		os.Remove(path)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	},
}

func contents(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// damage damages a file and restores its modification time.
func damage(t *testing.T, kind, path, other string) {
	t.Helper()
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	damages[kind](t, path, other)
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
		if err := os.Chtimes(path, time.Time{}, before.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
}

// pair makes two images of one lineage, a and b, which share most pages, and an unrelated image c.
func pair(t *testing.T) (*Images, []Image, [][]byte) {
	s := newImages(t)
	base := noise(1, 80)
	child := slices.Clone(base)
	copy(child[30*pageBytes:], noise(2, 20))
	pages := [][]byte{base, child, noise(3, 80)}
	return s, []Image{commit(t, s, "a", "", pages[0]), commit(t, s, "b", "a", pages[1]), commit(t, s, "c", "", pages[2])}, pages
}

// P28: an image with a damaged file is rejected.
func TestDamageOfEveryFileIsRefused(t *testing.T) {
	forms := map[string]func(t *testing.T, s *Images){
		"committed": func(*testing.T, *Images) {},
		"complete":  func(t *testing.T, s *Images) { deduplicate(t, s) },
	}
	for form, prepare := range forms {
		for _, file := range []string{manifestFile, StateFile, MetaFile, PagesFile} {
			for kind := range damages {
				for _, seen := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s %s %s seen=%v", form, file, kind, seen), func(t *testing.T) {
						t.Parallel()
						s, images, pages := pair(t)
						prepare(t, s)
						if seen {
							// An image can be damaged after it was verified.
							wantPages(t, s, images[1], pages[1])
						} else {
							s = open(t, s.dir, Options{Budget: 1 << 30})
						}
						damage(t, kind, filepath.Join(s.dir, imagePath("b", file)), filepath.Join(s.dir, imagePath("c", file)))
						_, err := load(t.Context(), s, "b", images[1].Sum)
						if form == "complete" && file == PagesFile && kind == "missing" {
							// It is a copy, and is rebuilt.
							wantPages(t, s, images[1], pages[1])
							return
						}
						wantCode(t, err, fault.Invalid, "snapshot_damaged")
						wantPages(t, s, images[0], pages[0])
						wantPages(t, s, images[2], pages[2])
						// Background work does not hide the damage.
						s.Deduplicate(t.Context())
						_, err = load(t.Context(), s, "b", images[1].Sum)
						if form == "complete" && file == PagesFile {
							wantPages(t, s, images[1], pages[1]) // its packs are whole
							return
						}
						wantCode(t, err, fault.Invalid, "snapshot_damaged")
					})
				}
			}
		}
	}
}

func TestDamageOfPacksAndIndexIsRefused(t *testing.T) {
	for kind := range damages {
		for _, what := range []string{"index", "own pack", "parent's pack"} {
			t.Run(what+" "+kind, func(t *testing.T) {
				t.Parallel()
				s, images, pages := pair(t)
				deduplicate(t, s)
				x, err := s.readIndex("b")
				if err != nil || len(x.packs) != 2 {
					t.Fatalf("index %+v: %v", x, err)
				}
				y, err := s.readIndex("a")
				if err != nil {
					t.Fatal(err)
				}
				z, err := s.readIndex("c")
				if err != nil {
					t.Fatal(err)
				}
				dropCopies(t, s)
				path, other := imagePath("b", indexFile), imagePath("c", indexFile)
				parent := slices.Index(x.packs, y.packs[0])
				switch what {
				case "own pack":
					path, other = packPath(x.packs[1-parent], ".pages"), packPath(z.packs[0], ".pages")
				case "parent's pack":
					path, other = packPath(x.packs[parent], ".pages"), packPath(z.packs[0], ".pages")
				}
				damage(t, kind, filepath.Join(s.dir, path), filepath.Join(s.dir, other))
				if kind == "longer" && what != "index" || kind == "one bit" && what == "parent's pack" {
					// The child does not need the bytes after the end of a pack, nor the middle of
					// its parent's pack.
					wantPages(t, s, images[1], pages[1])
					return
				}
				for range 2 {
					_, err = load(t.Context(), s, "b", images[1].Sum)
					wantCode(t, err, fault.Invalid, "snapshot_damaged")
				}
				wantPages(t, s, images[2], pages[2])
			})
		}
	}
}

// An attacker who can write to the directory cannot forge an image: not with a wrong checksum,
// another image, or an older manifest.
func TestSumAuthenticatesImage(t *testing.T) {
	s, images, pages := pair(t)
	old := contents(t, filepath.Join(s.dir, imagePath("b", manifestFile)))
	for _, sum := range []string{"", "00", images[0].Sum, images[1].Sum[:62], images[1].Sum + "00"} {
		_, err := load(t.Context(), s, "b", sum)
		wantCode(t, err, fault.Invalid, "snapshot_damaged")
	}
	wantPages(t, s, images[1], pages[1])
	deduplicate(t, s)
	complete := contents(t, filepath.Join(s.dir, imagePath("b", manifestFile)))
	// The attacker damages the file and restores the old manifest, which has no hash of the file.
	path := filepath.Join(s.dir, imagePath("b", PagesFile))
	damage(t, "one bit", path, "")
	put(t, filepath.Join(s.dir, imagePath("b", manifestFile)), old)
	_, err := load(t.Context(), s, "b", images[1].Sum)
	wantCode(t, err, fault.Invalid, "snapshot_damaged")
	put(t, filepath.Join(s.dir, imagePath("b", manifestFile)), complete)

	if err := os.RemoveAll(filepath.Join(s.dir, imagePath("b"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.dir, imagePath("c")), filepath.Join(s.dir, imagePath("b"))); err != nil {
		t.Fatal(err)
	}
	for _, img := range images[1:] {
		_, err := load(t.Context(), s, "b", img.Sum)
		wantCode(t, err, fault.Invalid, "snapshot_damaged")
	}
	if err := os.Symlink("b", filepath.Join(s.dir, imagePath("d"))); err != nil {
		t.Fatal(err)
	}
	_, err = s.Lease(t.Context(), "d", images[2].Sum)
	wantCode(t, err, fault.Invalid, "snapshot_damaged")
}

// A file that was verified for one image is not valid for another.
func TestAVerifiedFileIsNotVerifiedForAnother(t *testing.T) {
	s, images, pages := pair(t)
	deduplicate(t, s)
	for _, name := range []string{StateFile, PagesFile} {
		path := filepath.Join(s.dir, imagePath("b", name))
		os.Remove(path)
		if err := os.Link(filepath.Join(s.dir, imagePath("c", name)), path); err != nil {
			t.Fatal(err)
		}
		wantPages(t, s, images[2], pages[2])
		_, err := load(t.Context(), s, "b", images[1].Sum)
		wantCode(t, err, fault.Invalid, "snapshot_damaged")
		if name == StateFile {
			os.Remove(path)
			put(t, path, []byte("state of b"))
		}
	}
}

// Without a sync, the content after a power failure is unknown.
func TestIncompleteImageIsRejectedAfterBoot(t *testing.T) {
	s := newImages(t)
	lost := commit(t, s, "lost", "", noise(1, 4))
	next := open(t, s.dir, Options{Budget: 1 << 30})
	wantPages(t, next, lost, noise(1, 4))
	next.boot = "another boot"
	_, err := load(t.Context(), next, "lost", lost.Sum)
	wantCode(t, err, fault.Invalid, "snapshot_damaged")
	kept := commit(t, s, "kept", "", noise(2, 4))
	deduplicate(t, s)
	wantPages(t, next, kept, noise(2, 4))
	if z, err := s.Sizes(t.Context()); err != nil || !z["kept"].Durable {
		t.Errorf("Sizes: got %+v, error %v, want the kept image durable", z, err)
	}
}

// After the server dies between Commit and Deduplicate, the next server completes the image with
// the Sum in its row.
func TestAnotherProcessCompletesImagesOfKnownSum(t *testing.T) {
	s := newImages(t)
	img := commit(t, s, "a", "", noise(1, 4))
	blind := open(t, s.dir, Options{Budget: 1 << 30})
	deduplicate(t, blind)
	if z, _ := blind.Sizes(t.Context()); z["a"].Durable {
		t.Fatal("an image whose sum is unknown was completed")
	}
	next := open(t, s.dir, Options{Budget: 1 << 30, Sum: rows{"a": img.Sum}.find})
	deduplicate(t, next)
	if z, _ := next.Sizes(t.Context()); !z["a"].Durable {
		t.Fatal("the image is not complete")
	}
	wantPages(t, next, img, noise(1, 4))
}

package hostfiles

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// F24: a copy is made of exactly the open file, is found by its content, and is removed when
// nothing has referred to it for a time.
func TestF24Store(t *testing.T) {
	dir, storeDir := t.TempDir(), filepath.Join(t.TempDir(), "copies")
	s, err := OpenStore(storeDir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "lib")
	write(t, path, "one")
	if err := os.Chmod(path, os.ModeSetuid|0o751); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open, err := OpenBy(os.Getpid(), dir)
	if err != nil || len(open) != 1 {
		t.Fatalf("OpenBy: got %+v, error %v, want one file", open, err)
	}
	defer open.Close()
	// The file is replaced before it is listed. The open file counts.
	write(t, path+".new", "two")
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	listed, err := open[0].At(path)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := s.Find(listed); err != nil || at != "" {
		t.Errorf("Find before there is a copy: got %q, error %v", at, err)
	}
	kept, err := s.Keep(listed, open[0])
	if err != nil || !kept.Kept {
		t.Fatalf("Keep: got %+v, error %v", kept, err)
	}
	at, err := s.Find(kept)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(at); err != nil || string(data) != "one" {
		t.Errorf("the copy: got %q, error %v, want one", data, err)
	}
	// A copy must not let a program become another user.
	if info, err := os.Stat(at); err != nil || info.Mode() != 0o751 {
		t.Errorf("mode of the copy: got %v, error %v, want 0751", info.Mode(), err)
	}
	// A second copy of the same file takes no more room, also for another process.
	other, err := OpenStore(storeDir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := other.Keep(listed, open[0]); err != nil || !again.Kept {
		t.Errorf("second Keep: got %+v, error %v", again, err)
	}
	if n, err := s.Bytes(); err != nil || n != 3 {
		t.Errorf("Bytes: got %d, error %v, want 3", n, err)
	}
	if err := s.Sync(); err != nil {
		t.Error(err)
	}
	wantAfterPrune := func(what string, want int, lists ...[]File) {
		t.Helper()
		if _, err := s.Prune(lists...); err != nil {
			t.Errorf("%s: Prune: %v", what, err)
		}
		if list, err := os.ReadDir(storeDir); err != nil || len(list) != want {
			t.Errorf("%s: %d files are left, want %d, error %v", what, len(list), want, err)
		}
	}
	write(t, filepath.Join(storeDir, ".new-1"), "of a process that was killed")
	wantAfterPrune("used just now", 2)
	long := time.Now().Add(-2 * keepUnused)
	for _, name := range []string{at, filepath.Join(storeDir, ".new-1")} {
		if err := os.Chtimes(name, long, long); err != nil {
			t.Fatal(err)
		}
	}
	wantAfterPrune("referred to", 1, []File{{Path: "/other"}}, []File{kept})
	if _, err := s.Find(kept); err != nil {
		t.Fatal(err)
	}
	wantAfterPrune("used again", 1)
	if err := os.Chtimes(at, long, long); err != nil {
		t.Fatal(err)
	}
	wantAfterPrune("not referred to", 0)
	if at, err := s.Find(kept); err != nil || at != "" {
		t.Errorf("Find after the removal: got %q, error %v", at, err)
	}
}

// F24: a damaged copy is not used, and a full disk is not filled further.
func TestF24StoreIsBoundedAndVerified(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStore(filepath.Join(dir, "copies"))
	if err != nil {
		t.Fatal(err)
	}
	s.MaxBytes = 5
	var list []File
	for _, name := range []string{"one", "other"} {
		path := filepath.Join(dir, name)
		write(t, path, name)
		digest, size, err := sum(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, File{Path: path, Size: size, Sum: digest, Mode: 0o644})
	}
	kept, err := s.Keep(list[0], Open{})
	if err != nil || !kept.Kept {
		t.Fatalf("Keep: got %+v, error %v", kept, err)
	}
	if more, err := s.Keep(list[1], Open{}); err == nil || more.Kept {
		t.Errorf("Keep beyond the limit: got %+v, error %v", more, err)
	}
	s.MaxBytes = 0
	// A file that has changed since it was listed is not copied.
	write(t, list[1].Path, "OTHER")
	if more, err := s.Keep(list[1], Open{}); err == nil || more.Kept {
		t.Errorf("Keep of a file that has changed: got %+v, error %v", more, err)
	}
	for _, f := range []File{{Path: dir, Dir: true}, {Path: list[0].Path}} {
		if got, err := s.Keep(f, Open{}); err != nil || got.Kept {
			t.Errorf("Keep(%+v): got %+v, error %v, want no copy", f, got, err)
		}
	}
	at, err := s.Find(kept)
	if err != nil || at == "" {
		t.Fatalf("Find: got %q, error %v", at, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(at)); err != nil || len(entries) != 1 {
		t.Errorf("files of the store: got %v, error %v, want only the copy", entries, err)
	}
	write(t, at, "on3")
	if at, err := s.Find(kept); err != nil || at != "" {
		t.Errorf("Find of a changed copy: got %q, error %v, want none", at, err)
	}
}

// F24: an open file that was renamed has not been replaced, and yet the path by which it was opened
// is not known.
func TestF24Moved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "lib")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, path, "one")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	moved := func(what string, since time.Time, want bool) {
		t.Helper()
		open, err := OpenBy(os.Getpid(), dir)
		if err != nil || len(open) != 1 {
			t.Fatalf("%s: OpenBy: got %+v, error %v", what, open, err)
		}
		defer open.Close()
		if got, err := open[0].MovedSince(since, open[0].Path, dir); err != nil || got != want {
			t.Errorf("%s: MovedSince: got %v, error %v, want %v", what, got, err, want)
		}
	}
	since := later(t, dir)
	moved("as it was", since, false)
	write(t, filepath.Join(dir, "a", "b", "another"), "")
	moved("beside a new file", since, false)
	if err := os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c")); err != nil {
		t.Fatal(err)
	}
	moved("its directory", since, true)
	since = later(t, dir)
	moved("later", since, false)
	if err := os.Rename(filepath.Join(dir, "c", "b", "lib"), filepath.Join(dir, "c", "b", "old")); err != nil {
		t.Fatal(err)
	}
	moved("itself", since, true)
	since = later(t, dir)
	write(t, filepath.Join(dir, "new"), "two")
	if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "c", "b", "old")); err != nil {
		t.Fatal(err)
	}
	moved("replaced", since, false)
	// With a second file name, it would be undefined which one is meant.
	write(t, filepath.Join(dir, "last"), "three")
	g, err := os.Open(filepath.Join(dir, "last"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := os.Link(filepath.Join(dir, "last"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "last")); err != nil {
		t.Fatal(err)
	}
	if list, err := OpenBy(os.Getpid(), dir); err == nil {
		list.Close()
		t.Error("a file whose other name is left is listed")
	}
}

// later waits until the file system's clock has advanced, and returns its time.
func later(t *testing.T, dir string) time.Time {
	t.Helper()
	stamp := func() time.Time {
		path := filepath.Join(dir, "clock")
		write(t, path, "")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	first := stamp()
	for {
		if now := stamp(); now.After(first) {
			// Later changes have this time or a later one.
			return now.Add(-time.Nanosecond)
		}
	}
}

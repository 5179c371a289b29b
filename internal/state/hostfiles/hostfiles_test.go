package hostfiles

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// openBelow returns the files of a directory that this process has open.
func openBelow(t *testing.T, dir string) (list []File) {
	t.Helper()
	open, err := OpenBy(os.Getpid(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, o := range open {
		f, err := o.At(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, f)
	}
	return list
}

// F24: a listed file is distinguished from its later versions, whichever way it was changed, and
// only by its content.
func TestF24ListOfFiles(t *testing.T) {
	dir := t.TempDir()
	held, other := filepath.Join(dir, "held"), filepath.Join(dir, "other")
	write(t, held, "one")
	write(t, other, "one")
	f, err := os.Open(held)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := openBelow(t, dir)
	if len(list) != 1 || list[0].Path != held || list[0].Size != 3 || list[0].Sum == "" {
		t.Fatalf("open files: got %+v, want the one that is held", list)
	}
	wantChanged := func(want string) {
		t.Helper()
		got, err := Changed(list)
		if err != nil || want == "" && len(got) > 0 || want != "" && (len(got) != 1 || got[0].Path != want) {
			t.Errorf("Changed: got %+v, error %v, want %q", got, err, want)
		}
	}
	wantChanged("")
	write(t, other, "two")
	wantChanged("") // only a file that is not listed was changed
	write(t, other, "one")
	if err := os.Rename(other, held); err != nil {
		t.Fatal(err)
	}
	wantChanged("") // the new file has the same content
	// An open file that was replaced at its path is listed with its own content.
	if now := openBelow(t, dir); len(now) != 1 || now[0].Path != held || now[0].Sum != list[0].Sum {
		t.Errorf("open files after the replacement: got %+v", now)
	}
	write(t, held, "two")
	wantChanged(held) // it was changed in place
	write(t, held, "one and more")
	wantChanged(held)
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	wantChanged(held)
	write(t, other, "one")
	if err := os.Symlink(other, held); err != nil {
		t.Fatal(err)
	}
	wantChanged(held) // a link to a file with the same content is not followed
	if err := os.Remove(held); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	wantChanged(held) // a pipe does not block
	list = []File{{Path: dir, Dir: true}}
	wantChanged("")
	list[0].Path = other
	wantChanged(other)
	// A file with another content than at the time of the save is never used.
	list = []File{{Path: other, Size: 3}}
	wantChanged(other)
}

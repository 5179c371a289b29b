package guestmain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
)

// writeOne writes one file below a root and returns its content.
func writeOne(t *testing.T, root string, f guest.File, first bool) string {
	t.Helper()
	if err := writeFiles(root, []guest.File{f}, first); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, f.Path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Data that is appended again replaces the earlier data. So the certificate of an earlier sandbox
// does not stay in the bundle.
func TestAppendedDataIsReplaced(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "bundle")
	write(t, path, "original\n")
	add := func(text string) guest.File {
		return guest.File{Path: "/bundle", Mode: 0o644, Data: []byte(text), Append: true}
	}
	if got := writeOne(t, root, add("one\n"), true); got != "original\none\n" {
		t.Fatalf("first addition: got %q", got)
	}
	for range 2 {
		if got := writeOne(t, root, add("another\n"), false); got != "original\nanother\n" {
			t.Fatalf("second addition: got %q, want it in place of the first", got)
		}
	}
	// Data that a user inside has appended stays.
	write(t, path, "original\nanother\nmine\n")
	if got := writeOne(t, root, add("third\n"), false); got != "original\nthird\nmine\n" {
		t.Errorf("addition before a user's line: got %q, want the line preserved", got)
	}
	// If a user replaces the file, the user controls its content.
	write(t, path, "rebuilt\n")
	if got := writeOne(t, root, add("fourth\n"), false); got != "rebuilt\nfourth\n" {
		t.Errorf("addition to a rebuilt file: got %q, want it after the new content", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := writeOne(t, root, add("fifth\n"), false); got != "fifth\n" {
		t.Errorf("addition without a file to preserve: got %q, want only the addition", got)
	}
}

func TestDataAroundRangeIsReplaced(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "store")
	write(t, path, "hemiddleend")
	around := func(head, tail string) guest.File {
		return guest.File{Path: "/store", Mode: 0o644, Data: []byte(tail), Around: &guest.Around{Head: []byte(head), From: 2, To: 8, Length: 11}}
	}
	if got := writeOne(t, root, around("HE", "-one"), true); got != "HEmiddle-one" {
		t.Fatalf("first data around the range: got %q", got)
	}
	for range 2 {
		if got := writeOne(t, root, around("he", "-two and more"), false); got != "hemiddle-two and more" {
			t.Fatalf("second data around the range: got %q, want it in place of the first", got)
		}
	}
	// A file that a user inside has changed is not changed by the guest.
	write(t, path, "changed")
	if got := writeOne(t, root, around("HE", "-three"), false); got != "changed" {
		t.Errorf("file that a user has changed: got %q, want it unchanged", got)
	}
}

// relink removes links that only the previous configuration had, so that links that are named after
// a certificate do not accumulate. It keeps links that a user has changed.
func TestRelinkRemovesOldLinks(t *testing.T) {
	root := t.TempDir()
	for name, to := range map[string]string{"old": "/ours", "kept": "/ours", "changed": "/other"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(root, "file"), "x")
	before := map[string]string{"/old": "/ours", "/kept": "/ours", "/changed": "/ours", "/file": "/ours", "/absent": "/ours"}
	now := relink(root, before, []guest.File{{Path: "/kept", Link: "/ours"}, {Path: "/plain", Data: []byte("x")}})
	if len(now) != 1 || now["/kept"] != "/ours" {
		t.Errorf("links: got %v, want only /kept", now)
	}
	for name, want := range map[string]bool{"old": false, "kept": true, "changed": true, "file": true} {
		if _, err := os.Lstat(filepath.Join(root, name)); (err == nil) != want {
			t.Errorf("link %s exists: got %v, want %t", name, err, want)
		}
	}
}

// Once programs have run, users inside may have put anything at the path, to redirect the write or
// to block the guest.
func TestWriteFilesReplacesLinksAndPipes(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "outside")
	write(t, outside, "before")
	path := filepath.Join(root, "f")
	for _, obstruct := range []func(string) error{
		func(p string) error { return os.Symlink(outside, p) },
		func(p string) error { return unix.Mkfifo(p, 0o600) },
		func(p string) error { return os.Mkdir(p+temporarySuffix, 0o700) },
		func(p string) error { return os.Symlink(outside, p+temporarySuffix) },
	} {
		if err := obstruct(path); err != nil {
			t.Fatal(err)
		}
		if got := writeOne(t, root, guest.File{Path: "/f", Mode: 0o640, Data: []byte("ours")}, false); got != "ours" {
			t.Errorf("file in place of the link or pipe: got %q, want ours", got)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o640 {
			t.Errorf("mode of the new file: got %v, %v, want 0640", info.Mode(), err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile(outside); err != nil || string(data) != "before" {
		t.Errorf("writeFiles followed a link: the target has %q, %v", data, err)
	}
	// A pipe that replaces a file to append to does not block the guest.
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeFiles(root, []guest.File{{Path: "/f", Data: []byte("x"), Append: true}}, false); err == nil {
		t.Error("writeFiles appended to a pipe without an error")
	}
}

// An unchanged file is not written again, because the user waits for a claim.
func TestWriteFilesSkipsUnchangedFiles(t *testing.T) {
	root := t.TempDir()
	for _, f := range []guest.File{
		{Path: "/f", Mode: 0o644, Data: []byte("x")}, {Path: "/l", Link: "/f"}, {Path: "/a", Mode: 0o644, Data: []byte("x"), Append: true},
	} {
		number := func() [3]int64 {
			var stat unix.Stat_t
			if err := unix.Lstat(filepath.Join(root, f.Path), &stat); err != nil {
				t.Fatal(err)
			}
			return [3]int64{int64(stat.Ino), int64(stat.Mode), stat.Ctim.Nano()}
		}
		if err := writeFiles(root, []guest.File{f}, true); err != nil {
			t.Fatal(err)
		}
		before := number()
		if err := writeFiles(root, []guest.File{f}, false); err != nil || number() != before {
			t.Errorf("%s was written again: %v", f.Path, err)
		}
		f.Mode, f.Data, f.Link = 0o600, []byte("y"), strings.Replace(f.Link, "f", "g", 1)
		if err := writeFiles(root, []guest.File{f}, false); err != nil || number() == before {
			t.Errorf("%s was not written: %v", f.Path, err)
		}
	}
}

func FuzzAddition(f *testing.F) {
	f.Add(addition{From: 1, To: 3, Length: 4, Head: 1, Tail: 2, Sum: sum([]byte("h"), []byte("ta"))}.String(), []byte("hmmta"))
	f.Add("0 9 9 0 9 x", []byte(""))
	f.Add("-1 -1 -1 -1 -1 -1", []byte("text"))
	f.Add("9223372036854775807 9223372036854775807 9223372036854775807 1 1 x", []byte("text"))
	f.Fuzz(func(t *testing.T, text string, content []byte) {
		a, ok := parseAddition(text)
		if !ok {
			return
		}
		part, rest, ok := a.find(content)
		if ok && a.Head+len(part)+a.Tail+len(rest) != len(content) {
			t.Errorf("addition %q in %q: got range %q and rest %q", text, content, part, rest)
		}
	})
}

package guestmain

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/javastore"
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

// An image has a Java trust store of its own, so what was meant for the host's store is added to that
// one: at the first boot, and with another certificate in a copy of the sandbox.
func TestEntryIsAddedToAnotherJavaStore(t *testing.T) {
	entry := func(name string) []byte {
		return javastore.AppendEntry(nil, name, time.UnixMilli(1), []byte("certificate of "+name))
	}
	meant := func(name string) guest.File {
		host := javastore.Join(3, []byte("entries of the host"))
		end := len(host) - javastore.SumSize
		added := javastore.Join(4, host[javastore.HeadSize:end], entry(name))
		return guest.File{Path: "/store", Mode: 0o644, Data: added[end:], Around: &guest.Around{
			Head: added[:javastore.HeadSize], From: javastore.HeadSize, To: end, Length: len(host),
		}}
	}
	root := t.TempDir()
	path := filepath.Join(root, "store")
	image := bytes.Join([][]byte{entry("a"), entry("b")}, nil)
	write(t, path, string(javastore.Join(2, image)))
	for _, step := range []struct {
		name  string
		first bool
	}{{"one", true}, {"one", false}, {"two", false}, {"two", false}, {"three", true}} {
		want := javastore.Join(3, image, entry(step.name))
		if got := writeOne(t, root, meant(step.name), step.first); got != string(want) {
			t.Errorf("the entry %s, at the first boot %v: got %q, want %q", step.name, step.first, got, want)
		}
	}
	// A program inside has added another entry, and its tool has written a new file.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, string(javastore.Join(3, image, entry("own"))))
	want := javastore.Join(4, image, entry("own"), entry("four"))
	if got := writeOne(t, root, meant("four"), false); got != string(want) {
		t.Errorf("a store that was changed: got %q, want %q", got, want)
	}
	// Another format is left alone, and is no reason not to start.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write(t, path, "another format")
	if got := writeOne(t, root, meant("five"), true); got != "another format" {
		t.Errorf("another format: got %q, want it unchanged", got)
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

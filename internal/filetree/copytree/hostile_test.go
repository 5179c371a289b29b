package copytree_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/copytree"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// stream returns the stream with these steps: an entry, content as a string, or nil for an end.
func stream(t testing.TB, steps ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := copytree.NewWriter(&b)
	for _, s := range steps {
		switch s := s.(type) {
		case copytree.Entry:
			check(t, w.Entry(s))
		case string:
			check(t, w.Data(0, []byte(s)))
		case nil:
			check(t, w.End())
		}
	}
	check(t, w.Close())
	return b.Bytes()
}

func dir(name string) copytree.Entry {
	return copytree.Entry{Kind: copytree.Dir, Name: name, Mode: 0o755}
}
func file(name string, n int64) copytree.Entry {
	return copytree.Entry{Kind: copytree.File, Name: name, Mode: 0o644, Size: n}
}
func link(name, target string) copytree.Entry {
	return copytree.Entry{Kind: copytree.Link, Name: name, Target: target}
}

// P15: neither names nor links lead a copy out of its destination.
func TestF9HostileStreamsCannotLeaveDestination(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	write(t, filepath.Join(outside, "victim"), "mine", 0o644)
	for name, steps := range map[string][]any{
		"up":                  {dir("t"), file("..", 1), "x", nil, nil},
		"path":                {dir("t"), file("../../outside/new", 1), "x", nil, nil},
		"absolute":            {dir("t"), file("/"+outside+"/new", 1), "x", nil, nil},
		"nul":                 {dir("t"), file("a\x00b", 1), "x", nil, nil},
		"top":                 {file("../outside/victim", 1), "x", nil},
		"link, then file":     {dir("t"), link("a", "b"), dir("a"), file("new", 1), "x", nil, nil, nil},
		"link, then same":     {dir("t"), link("a", "a2"), file("a", 1), "x", nil, nil},
		"two tops":            {file("a", 1), "x", nil, file("b", 1), "x", nil},
		"end too often":       {dir("t"), nil, nil},
		"content beyond size": {file("a", 1), "xy", nil},
		"not ended":           {dir("t"), file("a", 1), "x", nil},
	} {
		dest := t.TempDir()
		check(t, os.Symlink(outside, filepath.Join(dest, "away")))
		if _, err := unpack(t.Context(), bytes.NewReader(stream(t, steps...)), dest, copytree.Options{Confine: true}); err == nil {
			t.Errorf("%s was written", name)
		}
		only(t, dest, "away")
	}
	only(t, outside, "victim")
	// A link that existed before is not followed: a file replaces it, and a directory is an error.
	dest := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dest, "t"), 0o755))
	check(t, os.Symlink(filepath.Join(outside, "victim"), filepath.Join(dest, "t", "f")))
	check(t, os.Symlink(outside, filepath.Join(dest, "t", "d")))
	trap := stream(t, dir("t"), dir("d"), file("new", 1), "x", nil, nil, file("f", 1), "x", nil, nil)
	if _, err := unpack(t.Context(), bytes.NewReader(trap), dest, copytree.Options{Confine: true}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("through a link: %v", err)
	}
	only(t, outside, "victim")
	_, err := unpack(t.Context(), bytes.NewReader(stream(t, dir("t"), file("f", 1), "x", nil, nil)), dest, copytree.Options{Confine: true})
	check(t, err)
	if data, err := os.ReadFile(filepath.Join(outside, "victim")); err != nil || string(data) != "mine" {
		t.Errorf("ReadFile: got %q, error %v", data, err)
	}
	if data, err := os.ReadFile(filepath.Join(dest, "t", "f")); err != nil || string(data) != "x" {
		t.Errorf("ReadFile: got %q, error %v", data, err)
	}
}

// P15: a copy cannot write outside its destination later, through a link that it has created.
func TestF9OutwardLinksAreLeftOut(t *testing.T) {
	for target, want := range map[string]bool{
		"x": true, "x/y": true, "./x": true, "../x": true, "../../x": true, "..": true, "../..": true,
		"/etc/passwd": false, "../../../x": false, "x/../y": false, "x/..": false, "../x/../..": false, "//x": false,
	} {
		dest := t.TempDir()
		steps := stream(t, dir("t"), dir("a"), dir("b"), link("l", target), nil, nil, nil)
		sum, err := unpack(t.Context(), bytes.NewReader(steps), dest, copytree.Options{Confine: true})
		check(t, err)
		_, err = os.Lstat(filepath.Join(dest, "t", "a", "b", "l"))
		if (err == nil) != want || sum.Links+sum.Outward != 1 || (sum.Links == 1) != want {
			t.Errorf("a link to %s: Lstat: error %v, and the copy has %+v", target, err, sum)
		}
		// Control: into a sandbox every link is copied unchanged.
		inside := t.TempDir()
		_, err = unpack(t.Context(), bytes.NewReader(steps), inside, copytree.Options{})
		check(t, err)
		if got, err := os.Readlink(filepath.Join(inside, "t", "a", "b", "l")); err != nil || got != target {
			t.Errorf("%s inside: got target %q, error %v", target, got, err)
		}
	}
	for target, want := range map[string]bool{"x": true, "../x": false, "/x": false} {
		dest := t.TempDir()
		_, err := unpack(t.Context(), bytes.NewReader(stream(t, link("l", target))), dest, copytree.Options{Confine: true})
		check(t, err)
		if _, err := os.Lstat(filepath.Join(dest, "l")); (err == nil) != want {
			t.Errorf("%s at the top: %v", target, err)
		}
	}
}

// S12: a copy that would fill the disk stops while some space is left.
func TestS12CopyKeepsFreeSpace(t *testing.T) {
	small := tmpfs(t, 64<<20)
	in, out := io.Pipe()
	go func() {
		w := copytree.NewWriter(out)
		err := w.Entry(file("endless", 1<<40))
		piece := bytes.Repeat([]byte{1}, copytree.MaxData)
		for at := int64(0); err == nil; at += copytree.MaxData {
			err = w.Data(at, piece)
		}
	}()
	_, err := unpack(t.Context(), in, small, copytree.Options{Confine: true})
	check(t, in.Close())
	if fault.CodeOf(err) != copytree.CodeDiskFull || fault.KindOf(err) != fault.Exhausted || !strings.Contains(err.Error(), "stay free") {
		t.Errorf("endless: %v", err)
	}
	only(t, small)
	// A copy that fits is written, even where little space is left.
	if _, err := unpack(t.Context(), bytes.NewReader(stream(t, file("few", 1), "x", nil)), small, copytree.Options{Confine: true}); err != nil {
		t.Error(err)
	}
	// A full file system gives the same error code.
	tiny := tmpfs(t, 1<<20)
	big := filepath.Join(t.TempDir(), "big")
	write(t, big, strings.Repeat("x", 2<<20), 0o644)
	if _, err := unpack(t.Context(), bytes.NewReader(pack(t, big, false)), tiny, copytree.Options{Confine: true}); fault.CodeOf(err) != copytree.CodeDiskFull {
		t.Errorf("full: %v", err)
	}
	only(t, tiny)
}

// tmpfs mounts a small file system for the test.
func tmpfs(t *testing.T, size int, more ...string) string {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, strings.Join(append(more, "size="+strconv.Itoa(size)), ",")); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}
	t.Cleanup(func() { check(t, unix.Unmount(dir, 0)) })
	return dir
}

// FuzzReader: no stream makes a reader panic, or name a file outside its directory.
func FuzzReader(f *testing.F) {
	d := f.TempDir()
	write(f, filepath.Join(d, "a", "b"), "content", 0o644)
	check(f, os.Symlink("b", filepath.Join(d, "a", "l")))
	f.Add(pack(f, filepath.Join(d, "a"), false))
	f.Add(stream(f, dir("t"), file("..", 1), "x", nil, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := copytree.NewReader(bytes.NewReader(b))
		first := true
		for {
			frame, err := r.Next()
			if err != nil {
				return
			}
			if e := frame.Entry; e != nil && (!first || e.Name != "") && filepath.Base(e.Name) != e.Name || frame.Entry != nil && frame.Entry.Name == ".." {
				t.Fatalf("Next: got the invalid name %q", frame.Entry.Name)
			}
			first = false
		}
	})
}

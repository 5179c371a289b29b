package copytree_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/copytree"
)

// pack returns the stream of a file or directory.
func pack(t testing.TB, path string, follow bool) []byte {
	t.Helper()
	source, err := copytree.Open(path, follow)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	var b bytes.Buffer
	if err := source.Send(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpack writes a stream to a destination.
func unpack(ctx context.Context, stream io.Reader, to string, o copytree.Options) (copytree.Summary, error) {
	first, frames, err := copytree.First(copytree.NewReader(stream))
	if err != nil {
		return copytree.Summary{}, err
	}
	place, err := copytree.Locate(to, first, false)
	if err != nil {
		return copytree.Summary{}, err
	}
	defer place.Close()
	stage, err := copytree.Begin(place)
	if err != nil {
		return copytree.Summary{}, err
	}
	defer stage.Close()
	return stage.Receive(ctx, frames, o)
}

// write writes a file, and creates its parent directories.
func write(t testing.TB, name, text string, mode fs.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// check fails the test after an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// only fails the test if a directory contains other names than the given ones.
func only(t testing.TB, dir string, names ...string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	check(t, err)
	var got []string
	for _, e := range left {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("%s has %q, want %q", dir, got, names)
	}
}

func TestF9CopyKeepsModesLinksAndTimes(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "src")
	write(t, filepath.Join(src, "bin", "tool"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(src, "od\xffd\n\"", "\xfe"), "bytes", 0o640)
	write(t, filepath.Join(src, "closed", "file"), "x", 0o400)
	check(t, os.Symlink("bin/tool", filepath.Join(src, "link")))
	check(t, os.Symlink("/nowhere", filepath.Join(src, "far")))
	check(t, syscall.Mkfifo(filepath.Join(src, "pipe"), 0o600))
	check(t, os.Chmod(filepath.Join(src, "bin", "tool"), 0o755|fs.ModeSetuid))
	check(t, os.Chmod(filepath.Join(src, "closed"), 0o500))
	old := time.Unix(1_000_000_000, 123456789)
	check(t, os.Chtimes(filepath.Join(src, "bin", "tool"), old, old))
	t.Cleanup(func() {
		_ = os.Chmod(filepath.Join(src, "closed"), 0o700)
		_ = os.Chmod(filepath.Join(dir, "out", "closed"), 0o700)
	})
	out := filepath.Join(dir, "out")
	sum, err := unpack(t.Context(), bytes.NewReader(pack(t, src, false)), out, copytree.Options{})
	check(t, err)
	if want := (copytree.Summary{Files: 3, Directories: 4, Links: 2, Bytes: 16, LeftOut: 1}); sum != want {
		t.Errorf("unpack: got %+v, want %+v", sum, want)
	}
	info, err := os.Stat(filepath.Join(out, "bin", "tool"))
	check(t, err)
	if info.Mode() != 0o755 || !info.ModTime().Equal(old) {
		t.Errorf("the program has the mode %v and the time %v", info.Mode(), info.ModTime())
	}
	if info, err := os.Stat(filepath.Join(out, "closed")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("Stat: got %v, error %v", info, err)
	}
	for name, want := range map[string]string{"link": "bin/tool", "far": "/nowhere"} {
		if got, err := os.Readlink(filepath.Join(out, name)); err != nil || got != want {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(out, "od\xffd\n\"", "\xfe")); err != nil || string(data) != "bytes" {
		t.Errorf("ReadFile: got %q, error %v", data, err)
	}
	only(t, dir, "out", "src")
	// A second copy is merged with the first, whose other files stay.
	write(t, filepath.Join(out, "mine"), "mine", 0o644)
	check(t, os.WriteFile(filepath.Join(src, "bin", "tool"), []byte("new"), 0o755))
	check(t, os.Chmod(filepath.Join(out, "closed"), 0o700))
	_, err = unpack(t.Context(), bytes.NewReader(pack(t, src+"/.", false)), out, copytree.Options{})
	check(t, err)
	if data, err := os.ReadFile(filepath.Join(out, "bin", "tool")); err != nil || string(data) != "new" {
		t.Errorf("ReadFile: got %q, error %v", data, err)
	}
	if _, err := os.Stat(filepath.Join(out, "mine")); err != nil {
		t.Error(err)
	}
}

func TestF9CopyKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "sparse")
	f, err := os.Create(name)
	check(t, err)
	const size = 1 << 40
	check(t, f.Truncate(size))
	_, err = f.WriteAt([]byte("in the middle"), 1<<39)
	check(t, err)
	check(t, f.Close())
	stream := pack(t, name, false)
	if len(stream) > 1<<20 {
		t.Errorf("the stream has %d bytes", len(stream))
	}
	_, err = unpack(t.Context(), bytes.NewReader(stream), filepath.Join(dir, "copy"), copytree.Options{Confine: true})
	check(t, err)
	var stat unix.Stat_t
	check(t, unix.Stat(filepath.Join(dir, "copy"), &stat))
	if stat.Size != size || stat.Blocks*512 > 1<<20 {
		t.Errorf("the copy has %d bytes and uses %d of the disk", stat.Size, stat.Blocks*512)
	}
	text := make([]byte, 13)
	c, err := os.Open(filepath.Join(dir, "copy"))
	check(t, err)
	defer c.Close()
	if _, err := c.ReadAt(text, 1<<39); err != nil || string(text) != "in the middle" {
		t.Errorf("ReadAt: got %q, error %v", text, err)
	}
}

// On a disk that does not report holes, zeros also become holes, and all other data stays at its
// offset.
func TestZerosBecomeHoles(t *testing.T) {
	dir := t.TempDir()
	var content []byte
	for i, n := range []int{1, 4096, 70_000, 4095, 300_000, 8192, 5} {
		piece := bytes.Repeat([]byte{byte(i % 2 * 7)}, n)
		content = append(content, piece...)
	}
	write(t, filepath.Join(dir, "a"), string(content), 0o644)
	_, err := unpack(t.Context(), bytes.NewReader(pack(t, filepath.Join(dir, "a"), false)), filepath.Join(dir, "b"), copytree.Options{})
	check(t, err)
	if got, err := os.ReadFile(filepath.Join(dir, "b")); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the copy differs: got %d bytes, error %v", len(got), err)
	}
}

// S12: a copy that fails or is interrupted leaves the old files and no new ones.
func TestS12FailedCopyChangesNothing(t *testing.T) {
	dir := t.TempDir()
	src, dest := filepath.Join(dir, "tree"), filepath.Join(dir, "dest")
	write(t, filepath.Join(src, "a"), strings.Repeat("new", 100_000), 0o644)
	write(t, filepath.Join(src, "z", "b"), "new", 0o644)
	write(t, filepath.Join(dest, "tree", "a"), "old", 0o644)
	whole := pack(t, src, false)
	for _, n := range []int{0, 10, 20, 40, 1000, len(whole) - 40, len(whole) - 1} {
		if _, err := unpack(t.Context(), bytes.NewReader(whole[:n]), dest, copytree.Options{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("stream cut after %d bytes: got error %v", n, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := io.MultiReader(bytes.NewReader(whole[:1000]), &calling{cancel, bytes.NewReader(whole[1000:])})
	if _, err := unpack(ctx, interrupted, dest, copytree.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	only(t, dest, "tree")
	only(t, filepath.Join(dest, "tree"), "a")
	if data, err := os.ReadFile(filepath.Join(dest, "tree", "a")); err != nil || string(data) != "old" {
		t.Errorf("ReadFile: got %q, error %v", data, err)
	}
	// Control: a complete copy is written.
	if _, err := unpack(t.Context(), bytes.NewReader(whole), dest, copytree.Options{}); err != nil {
		t.Error(err)
	}
	only(t, filepath.Join(dest, "tree"), "a", "z")
}

// calling calls do before each read.
type calling struct {
	do   func()
	rest io.Reader
}

func (c *calling) Read(b []byte) (int, error) {
	c.do()
	return c.rest.Read(b)
}

// The next copy to the same destination removes the stage of a killed process, but not that of a
// running one.
func TestS12StaleStagesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), "x", 0o644)
	dest := filepath.Join(dir, "dest")
	for _, name := range []string{".crannog-cp-killed", ".crannog-cp-runs"} {
		write(t, filepath.Join(dest, name, "part"), "x", 0o644)
	}
	running, err := os.Open(filepath.Join(dest, ".crannog-cp-runs"))
	check(t, err)
	defer running.Close()
	check(t, unix.Flock(int(running.Fd()), unix.LOCK_EX))
	defer copytree.SetStaleAfter(0)()
	_, err = unpack(t.Context(), bytes.NewReader(pack(t, filepath.Join(dir, "f"), false)), dest, copytree.Options{})
	check(t, err)
	only(t, dest, ".crannog-cp-runs", "f")
}

func TestCopyDestination(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "x", 0o644)
	write(t, filepath.Join(dir, "tree", "in"), "x", 0o644)
	check(t, os.Symlink("tree", filepath.Join(dir, "link")))
	for _, c := range []struct{ from, to, want string }{
		{"file", "new", "new"}, {"file", "d", "d/file"}, {"file", "d/", "d/file"}, {"file", "none/", ""}, {"file", "no/ne", ""},
		{"tree", "new", "new/in"}, {"tree", "d", "d/tree/in"}, {"tree/.", "d", "d/in"}, {"tree/", "new/", "new/in"}, {"tree", "d/f", ""},
		{"link", "d", "d/link"}, {"link/", "d", "d/link/in"}, {"file", "d/sub", "d/sub/file"}, {"tree", "d/tree", "d/tree/tree/in"},
	} {
		dest := t.TempDir()
		write(t, filepath.Join(dest, "d", "f"), "old", 0o644)
		check(t, os.Mkdir(filepath.Join(dest, "d", "sub"), 0o755))
		if c.to == "d/tree" {
			check(t, os.Mkdir(filepath.Join(dest, "d", "tree"), 0o755))
		}
		sep := "/"
		_, err := unpack(t.Context(), bytes.NewReader(pack(t, dir+sep+c.from, false)), dest+sep+c.to, copytree.Options{})
		if (err == nil) != (c.want != "") {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
			continue
		}
		if c.want == "" {
			continue
		}
		info, err := os.Lstat(filepath.Join(dest, c.want))
		if err != nil || c.from == "link" && info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s to %s: %v, %v", c.from, c.to, info, err)
		}
	}
}

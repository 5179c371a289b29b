package tree_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest/tree"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// write writes a file and creates its parent directories.
func write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// list returns the entries that List writes.
func list(t testing.TB, req changeset.TreeRequest) []changeset.Entry {
	t.Helper()
	var b bytes.Buffer
	if err := tree.List(t.Context(), &b, req); err != nil {
		t.Fatal(err)
	}
	all, err := changeset.ReadTree(&b, changeset.Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// names returns the paths and types of entries.
func names(all []changeset.Entry) (out []string) {
	for _, e := range all {
		s := e.Path + " " + string(e.Type)
		if e.Opaque {
			s += " opaque"
		}
		out = append(out, s)
	}
	return out
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "text")
	write(t, filepath.Join(dir, "d", "odd\xff\n\"name"), "")
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := list(t, changeset.TreeRequest{Dir: dir})
	if want := []string{"a file", "d dir", "d/odd\xff\n\"name file", "link link", "pipe other"}; !slices.Equal(names(got), want) {
		t.Errorf("List: got %q, want %q", names(got), want)
	}
	if got[0].Sum != "" || got[3].Target != "/etc" {
		t.Errorf("entries: got %+v, want no checksum for the first and the target /etc for the fourth", got)
	}
	// The host finds the walked entries in the directory.
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	walked, err := changeset.Walk(t.Context(), root, changeset.Bounds{}, nil)
	for i := range walked {
		walked[i].Ino = 0 // only the host has inode numbers
	}
	if err != nil || fmt.Sprint(walked) != fmt.Sprint(got) {
		t.Errorf("Walk: got %v\n%+v\nwant\n%+v", err, walked, got)
	}
	// If paths are given, only these are listed. Missing files are skipped, and links are not
	// followed.
	listed := list(t, changeset.TreeRequest{Dir: dir, Sums: true, SumBytes: 3, Paths: [][]byte{[]byte("a"), []byte("none"), []byte("link/passwd"), []byte("d/odd\xff\n\"name"), []byte("pipe")}})
	if want := []string{"a file", "d/odd\xff\n\"name file", "pipe other"}; !slices.Equal(names(listed), want) || listed[0].Sum != "" || listed[1].Sum == "" {
		t.Errorf("List of paths: got %+v, want %q with checksums of small files only", listed, want)
	}
	later := list(t, changeset.TreeRequest{Dir: dir, Newer: time.Now().Add(time.Hour)})
	if want := []string{"d dir"}; !slices.Equal(names(later), want) {
		t.Errorf("newer: got %q, want %q", names(later), want)
	}
}

// A file that the policy masks by a mount is not listed as a file of the workspace.
func TestListMarksMounts(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "with space", "x"), "")
	write(t, filepath.Join(other, "canary"), "")
	at := filepath.Join(dir, "with space")
	if err := unix.Mount(other, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if got, want := names(list(t, changeset.TreeRequest{Dir: dir})), []string{"with space dir opaque"}; !slices.Equal(got, want) {
		t.Errorf("List with a mount: got %q, want %q", got, want)
	}
	if got := names(list(t, changeset.TreeRequest{Dir: "/", Paths: [][]byte{[]byte("proc"), []byte("sys"), []byte("dev")}})); strings.Count(strings.Join(got, ","), "opaque") != 3 {
		t.Errorf("directories of the kernel: got %q, want 3 opaque ones", got)
	}
}

func TestListEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "text")
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller has left")
	cancel(cause)
	var b bytes.Buffer
	if err := tree.List(ctx, &b, changeset.TreeRequest{Dir: dir}); !errors.Is(err, cause) {
		t.Errorf("List: got %v, want the cause of the context", err)
	}
	if _, err := changeset.ReadTree(&b, changeset.Bounds{}); err == nil {
		t.Error("ReadTree accepts an incomplete list")
	}
	if err := tree.Pack(ctx, &b, changeset.PackRequest{Dir: dir, Paths: [][]byte{[]byte("a")}, FileBytes: 10}); !errors.Is(err, cause) {
		t.Errorf("Pack: got %v, want the cause of the context", err)
	}
}

func TestPackSkipsTooLargeFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), "AAAA")
	write(t, filepath.Join(dir, "b"), "BBB")
	var b bytes.Buffer
	if err := tree.Pack(t.Context(), &b, changeset.PackRequest{Dir: dir, Paths: [][]byte{[]byte("a"), []byte("b")}, FileBytes: 3}); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Contains(text, "AAAA") || !strings.Contains(text, "BBB") {
		t.Errorf("packed files: got %q, want BBB without the large file", text)
	}
}

func BenchmarkList(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		write(b, filepath.Join(dir, fmt.Sprint(i/100), fmt.Sprintf("file-%d", i)), "")
	}
	for b.Loop() {
		list(b, changeset.TreeRequest{Dir: dir})
	}
}

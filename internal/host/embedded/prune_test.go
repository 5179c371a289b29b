package embedded_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/embedded"
)

// addVersion puts a program of an earlier version into dir, last used that long ago.
func addVersion(t *testing.T, dir, letter string, ago time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, "tool-12-"+strings.Repeat(letter, 32))
	if err := os.WriteFile(path, []byte("a version "+letter), 0o755); err != nil {
		t.Fatal(err)
	}
	setAge(t, path, ago)
	return path
}

// setAge sets how long ago a file was last used.
func setAge(t *testing.T, path string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestPruneKeepsUsedPrograms(t *testing.T) {
	dir := t.TempDir()
	const day = 24 * time.Hour
	requested := program(t, dir, []byte("this version"))
	setAge(t, requested, 3*day)
	recent := addVersion(t, dir, "a", day-time.Hour)
	kept := addVersion(t, dir, "b", 3*day)
	old := addVersion(t, dir, "c", 3*day)
	open := addVersion(t, dir, "d", 3*day)
	mapped := addVersion(t, dir, "e", 3*day)
	running := addVersion(t, dir, "f", 3*day)
	draft := filepath.Join(dir, ".new-123")
	foreign := filepath.Join(dir, "notes.txt")
	for _, path := range []string{draft, foreign} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		setAge(t, path, 3*day)
	}
	f, err := os.Open(open)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := os.Open(mapped)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := unix.Mmap(int(m.Fd()), 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	m.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	stop := start(t, running)
	setAge(t, running, 3*day)

	keep := func(path string) bool { return path == kept }
	removed, err := embedded.Prune(dir, keep)
	slices.Sort(removed)
	if want := []string{draft, old}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("Prune removed %v, %v; want %v", removed, err, want)
	}
	for _, path := range []string{requested, recent, kept, open, mapped, running, foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{draft, old} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}

	// When the process has ended, the next Prune removes its program.
	stop()
	if removed, err := embedded.Prune(dir, keep); err != nil || !slices.Equal(removed, []string{running}) {
		t.Errorf("Prune after the process has ended: removed %v, %v; want %s", removed, err, running)
	}
	if removed, err := embedded.Prune(dir, nil); err == nil {
		t.Errorf("without a keep function it removed %v", removed)
	}
	if removed, err := embedded.Prune(filepath.Join(dir, "none"), keep); err != nil || len(removed) > 0 {
		t.Errorf("a directory that does not exist: removed %v, %v", removed, err)
	}
}

// start turns a file into a copy of cat and runs it until stop is called.
func start(t *testing.T, path string) (stop func()) {
	t.Helper()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(cat)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// A program that was removed after it was requested is written again.
func TestRemovedProgramIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, []byte("this version"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if again := program(t, dir, []byte("this version")); again != path {
		t.Errorf("the program is at %s, want %s as before", again, path)
	}
	setAge(t, path, 72*time.Hour)
	if removed, err := embedded.Prune(dir, func(string) bool { return false }); err != nil || len(removed) > 0 {
		t.Errorf("Prune of a requested program: removed %v, %v; want nothing", removed, err)
	}
}

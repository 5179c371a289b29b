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

// version puts a program of an earlier version into dir, last used at the given time ago.
func version(t *testing.T, dir, letter string, ago time.Duration) string {
	t.Helper()
	path := filepath.Join(dir, "tool-12-"+strings.Repeat(letter, 32))
	if err := os.WriteFile(path, []byte("a version "+letter), 0o755); err != nil {
		t.Fatal(err)
	}
	age(t, path, ago)
	return path
}

func age(t *testing.T, path string, ago time.Duration) {
	t.Helper()
	at := time.Now().Add(-ago)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestPruneLeavesWhatIsUsed(t *testing.T) {
	dir := t.TempDir()
	const day = 24 * time.Hour
	asked := program(t, dir, []byte("this version"))
	age(t, asked, 3*day)
	fresh := version(t, dir, "a", day-time.Hour)
	kept := version(t, dir, "b", 3*day)
	old := version(t, dir, "c", 3*day)
	open := version(t, dir, "d", 3*day)
	mapped := version(t, dir, "e", 3*day)
	running := version(t, dir, "f", 3*day)
	half := filepath.Join(dir, ".new-123")
	foreign := filepath.Join(dir, "notes.txt")
	for _, path := range []string{half, foreign} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		age(t, path, 3*day)
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
	age(t, running, 3*day)

	keep := func(path string) bool { return path == kept }
	removed, err := embedded.Prune(dir, keep)
	slices.Sort(removed)
	if want := []string{half, old}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %v, %v; want %v", removed, err, want)
	}
	for _, path := range []string{asked, fresh, kept, open, mapped, running, foreign} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{half, old} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}

	// When the process has ended, the next Prune removes its program.
	stop()
	if removed, err := embedded.Prune(dir, keep); err != nil || !slices.Equal(removed, []string{running}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if removed, err := embedded.Prune(dir, nil); err == nil {
		t.Errorf("without anybody to ask it removed %v", removed)
	}
	if removed, err := embedded.Prune(filepath.Join(dir, "none"), keep); err != nil || len(removed) > 0 {
		t.Errorf("a directory that is not there: %v %v", removed, err)
	}
}

// start makes a program of a file and runs it.
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
func TestARemovedProgramIsWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	path := program(t, dir, []byte("this version"))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if again := program(t, dir, []byte("this version")); again != path {
		t.Errorf("%s, and then %s", path, again)
	}
	age(t, path, 72*time.Hour)
	if removed, err := embedded.Prune(dir, func(string) bool { return false }); err != nil || len(removed) > 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
}

package durable_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/host/durable"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestReplaceWritesContentAndMode(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, o := range []durable.Options{{}, {Sync: true}, {Draft: ".draft-*"}, {Draft: ".other", Sync: true, Mode: 0o755}} {
		for _, text := range []string{"one", "another, and longer", ""} {
			if err := durable.Replace(path, []byte(text), o); err != nil {
				t.Fatalf("Replace with %+v: %v", o, err)
			}
			if got := read(t, path); got != text {
				t.Errorf("%+v: the file contains %q, want %q", o, got, text)
			}
		}
		info, err := os.Stat(path)
		if want := max(o.Mode, 0o600); err != nil || info.Mode() != want {
			t.Errorf("Replace with %+v: got mode %v, %v; want %v", o, info.Mode(), err, want)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
			t.Errorf("%+v: the directory has %q, want only the file", o, got)
		}
	}
}

// A Mode is applied regardless of the umask.
func TestModeIgnoresUmask(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "file")
	if err := durable.Replace(path, nil, durable.Options{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode with a umask: got %v, %v; want 0755", info.Mode(), err)
	}
}

// Only writes with Sync are synced, in an order that survives a loss of power: the content before
// the name, and the directory before the call returns.
func TestSyncOrder(t *testing.T) {
	for want, sync := range map[string]bool{"write close name": false, "write sync close name sync directory": true} {
		var steps []string
		o := durable.Options{Sync: sync, Step: func(name string) error { steps = append(steps, name); return nil }}
		if err := durable.Replace(filepath.Join(t.TempDir(), "file"), nil, o); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(steps, " "); got != want {
			t.Errorf("Sync %v: the steps are %q, want %q", sync, got, want)
		}
	}
}

// Whichever step fails, the error is returned, the file is complete, old or new, and no draft is
// left.
func TestFailedStepLeavesCompleteFile(t *testing.T) {
	broken := errors.New("broken")
	for _, draft := range []string{"", ".draft-*"} {
		for _, failing := range []string{"write", "sync", "close", "name", "sync directory"} {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if err := durable.Replace(path, []byte("old"), durable.Options{}); err != nil {
				t.Fatal(err)
			}
			open := descriptors(t)
			err := durable.Replace(path, []byte("new"), durable.Options{Draft: draft, Sync: true, Step: func(name string) error {
				if name == failing {
					return broken
				}
				return nil
			}})
			if !errors.Is(err, broken) {
				t.Errorf("%s fails: got %v, want its error", failing, err)
			}
			want := "old"
			if failing == "sync directory" {
				want = "new"
			}
			if got := read(t, path); got != want {
				t.Errorf("%s fails: the file contains %q, want %q", failing, got, want)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
				t.Errorf("%s fails: the directory has %q, want only the file", failing, got)
			}
			if now := descriptors(t); now != open {
				t.Errorf("%s fails: %d descriptors were open before, %d after", failing, open, now)
			}
		}
	}
}

// descriptors returns the number of open descriptors of this process.
func descriptors(t *testing.T) int { t.Helper(); return len(names(t, "/proc/self/fd")) }

// If the process is killed at any step, the file is complete, and leftovers do not stop the next
// writer. The test runs itself in a child process, which kills itself.
func TestKilledWriterLeavesCompleteFile(t *testing.T) {
	if at := os.Getenv("DURABLE_DIES_AT"); at != "" {
		_ = durable.Replace(os.Getenv("DURABLE_PATH"), []byte("new"), durable.Options{Sync: true, Step: func(name string) error {
			if name == at {
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		}})
		select {}
	}
	for _, at := range []string{"write", "sync", "close", "name", "sync directory"} {
		path := filepath.Join(t.TempDir(), "file")
		if err := durable.Replace(path, []byte("old"), durable.Options{}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriterLeavesCompleteFile$")
		cmd.Env = append(os.Environ(), "DURABLE_DIES_AT="+at, "DURABLE_PATH="+path)
		out, err := cmd.CombinedOutput()
		if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || st.Signal() != syscall.SIGKILL {
			t.Fatalf("control: the child was not killed at %s: %v\n%s", at, err, out)
		}
		want := "old"
		if at == "sync directory" {
			want = "new"
		}
		if got := read(t, path); got != want {
			t.Errorf("killed at %s: the file contains %q, want %q", at, got, want)
		}
		if err := durable.Replace(path, []byte("next"), durable.Options{}); err != nil || read(t, path) != "next" {
			t.Errorf("killed at %s: the next write failed: %v", at, err)
		}
		if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"file"}) {
			t.Errorf("killed at %s: the directory has %q, want only the file", at, got)
		}
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "file")
	for _, name := range []string{path, path + ".new"} {
		if err := os.Symlink(victim, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Replace(path, []byte("ours"), durable.Options{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, victim); got != "untouched" {
		t.Errorf("the link was followed: %q", got)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || read(t, path) != "ours" {
		t.Errorf("the file has mode %v, %v; want a regular file with the new content", info.Mode(), err)
	}
}

func TestFailedCallsLeaveNoFiles(t *testing.T) {
	dir := t.TempDir()
	// The target is a directory that is not empty.
	path := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(path, nil, durable.Options{}); err == nil {
		t.Error("a directory was replaced")
	}
	// The function that produces the content fails.
	errWrite := errors.New("write failed")
	err := durable.ReplaceWith(filepath.Join(dir, "file"), durable.Options{}, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, errWrite)
	})
	if !errors.Is(err, errWrite) {
		t.Error(err)
	}
	if err := durable.Replace(filepath.Join(dir, "no", "file"), nil, durable.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := durable.SyncDir(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"directory"}) {
		t.Errorf("the directory has %q, want no other files", got)
	}
}

// When many callers create a file at once, one wins, and all others see its complete file.
func TestCreateHasOneWinner(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var mu sync.Mutex
	winner := "" // the content that the successful caller wrote
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), 4096)
			err := durable.Create(path, []byte(text), durable.Options{Draft: ".key-*", Sync: true})
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				if winner != "" {
					t.Error("two calls created the file")
				}
				winner = text
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if got := read(t, path); winner == "" || got != winner {
		t.Error("the file does not have the content of the successful call")
	}
	if got := names(t, dir); !slices.Equal(got, []string{"key"}) {
		t.Errorf("the directory has %q, want no other files", got)
	}
}

// Create returns the error of syncing the directory even if the file exists already.
func TestCreateReportsDirectorySyncError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	broken := errors.New("broken")
	o := durable.Options{Sync: true, Step: func(name string) error {
		if name == "sync directory" {
			return broken
		}
		return nil
	}}
	for range 2 {
		if err := durable.Create(path, nil, o); !errors.Is(err, broken) || errors.Is(err, fs.ErrExist) {
			t.Error(err)
		}
	}
}

// Concurrent readers see the old or the new content, never a part of one.
func TestReadersSeeCompleteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	contents := []string{strings.Repeat("a", 64<<10), strings.Repeat("b", 96<<10)}
	if err := durable.Replace(path, []byte(contents[0]), durable.Options{}); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for _, text := range contents {
		writers.Go(func() {
			for range 50 {
				if err := durable.Replace(path, []byte(text), durable.Options{Draft: ".file-*"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for {
		if got := read(t, path); !slices.Contains(contents, got) {
			t.Fatalf("a reader saw %d bytes, want one of the complete contents", len(got))
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

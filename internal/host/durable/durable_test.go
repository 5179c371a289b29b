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

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, o := range []durable.Options{{}, {Sync: true}, {Draft: ".draft-*"}, {Draft: ".other", Sync: true, Mode: 0o755}} {
		for _, text := range []string{"one", "another, and longer", ""} {
			if err := durable.Replace(path, []byte(text), o); err != nil {
				t.Fatalf("%+v: %v", o, err)
			}
			if got := read(t, path); got != text {
				t.Errorf("%+v: %q, not %q", o, got, text)
			}
		}
		info, err := os.Stat(path)
		if want := max(o.Mode, 0o600); err != nil || info.Mode() != want {
			t.Errorf("%+v: mode %v, %v", o, info.Mode(), err)
		}
		if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
			t.Errorf("%+v left %q", o, got)
		}
	}
}

// A Mode is applied regardless of the umask.
func TestModeIsExact(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "file")
	if err := durable.Replace(path, nil, durable.Options{Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// Only files with Lasting are synced, and in the order that makes them last: the content before the
// name, and the directory before the call returns.
func TestSteps(t *testing.T) {
	for want, lasting := range map[string]bool{"write close name": false, "write sync close name sync directory": true} {
		var steps []string
		o := durable.Options{Sync: lasting, Step: func(name string) error { steps = append(steps, name); return nil }}
		if err := durable.Replace(filepath.Join(t.TempDir(), "file"), nil, o); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(steps, " "); got != want {
			t.Errorf("lasting %v: %s", lasting, got)
		}
	}
}

// Whichever step fails, the error is returned, the file is complete, old or new, and no draft is
// left.
func TestAFailedStepLosesNothing(t *testing.T) {
	broken := errors.New("broken")
	for _, draft := range []string{"", ".draft-*"} {
		for _, fails := range []string{"write", "sync", "close", "name", "sync directory"} {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			if err := durable.Replace(path, []byte("old"), durable.Options{}); err != nil {
				t.Fatal(err)
			}
			open := descriptors(t)
			err := durable.Replace(path, []byte("new"), durable.Options{Draft: draft, Sync: true, Step: func(name string) error {
				if name == fails {
					return broken
				}
				return nil
			}})
			if !errors.Is(err, broken) {
				t.Errorf("%s: %v", fails, err)
			}
			want := "old"
			if fails == "sync directory" {
				want = "new"
			}
			if got := read(t, path); got != want {
				t.Errorf("%s: %q", fails, got)
			}
			if got := names(t, dir); !slices.Equal(got, []string{"file"}) {
				t.Errorf("%s left %q", fails, got)
			}
			if now := descriptors(t); now != open {
				t.Errorf("%s: %d descriptors were open, and now %d are", fails, open, now)
			}
		}
	}
}

func descriptors(t *testing.T) int { t.Helper(); return len(names(t, "/proc/self/fd")) }

// If the process is killed at any step, the file is complete, and leftovers do not stop the next
// writer.
func TestAKilledWriterLosesNothing(t *testing.T) {
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
		cmd := exec.Command(os.Args[0], "-test.run=^TestAKilledWriterLosesNothing$")
		cmd.Env = append(os.Environ(), "DURABLE_DIES_AT="+at, "DURABLE_PATH="+path)
		out, err := cmd.CombinedOutput()
		if st, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || st.Signal() != syscall.SIGKILL {
			t.Fatalf("%s: the control: it was not killed: %v\n%s", at, err, out)
		}
		want := "old"
		if at == "sync directory" {
			want = "new"
		}
		if got := read(t, path); got != want {
			t.Errorf("%s: %q", at, got)
		}
		if err := durable.Replace(path, []byte("next"), durable.Options{}); err != nil || read(t, path) != "next" {
			t.Errorf("%s: %v", at, err)
		}
		if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"file"}) {
			t.Errorf("%s: %q is left", at, got)
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
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestFailures(t *testing.T) {
	dir := t.TempDir()
	// The target is a directory that is not empty.
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := durable.Replace(path, nil, durable.Options{}); err == nil {
		t.Error("a directory was replaced")
	}
	// The function that produces the content fails.
	short := errors.New("short")
	err := durable.ReplaceWith(filepath.Join(dir, "file"), durable.Options{}, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, short)
	})
	if !errors.Is(err, short) {
		t.Error(err)
	}
	if err := durable.Replace(filepath.Join(dir, "no", "file"), nil, durable.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := durable.SyncDir(filepath.Join(dir, "no")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"taken"}) {
		t.Errorf("%q is left", got)
	}
}

// When many callers create a file at once, one wins, and all others see its complete file.
func TestCreateHasOneWinner(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var mu sync.Mutex
	won := ""
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			text := strings.Repeat(string(rune('a'+i)), 4096)
			err := durable.Create(path, []byte(text), durable.Options{Draft: ".key-*", Sync: true})
			switch {
			case err == nil:
				mu.Lock()
				defer mu.Unlock()
				if won != "" {
					t.Error("two won")
				}
				won = text
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := read(t, path); won == "" || got != won {
		t.Error("the file is not the winner's")
	}
	if got := names(t, dir); !slices.Equal(got, []string{"key"}) {
		t.Errorf("%q is left", got)
	}
}

// An existing file does not hide the fact that its name could not be made durable.
func TestCreateTellsOfTheDirectory(t *testing.T) {
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

// Readers see one content or the other, never a part.
func TestReadersSeeAWholeFile(t *testing.T) {
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
			t.Fatalf("%d bytes", len(got))
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

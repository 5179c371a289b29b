package library_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/archive"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
)

// work has the operations during which a child process is killed. Their images come from a registry
// or a file.
var work = map[string]func(t *testing.T, l *library.Library, host, file string) error{
	"pull": func(t *testing.T, l *library.Library, host, _ string) error {
		_, err := l.Pull(t.Context(), host+"/app:1", "", ignore)
		return err
	},
	"import": func(t *testing.T, l *library.Library, _, file string) error {
		_, err := l.Import(t.Context(), file, "", "", ignore)
		return err
	},
	"remove and prune": func(t *testing.T, l *library.Library, host, _ string) error {
		_, err := l.Remove(t.Context(), host+"/old:1")
		return err
	},
}

// TestKilledChild is the process that is killed before its n-th step. It runs only as a child of
// TestLibrarySurvivesKill.
func TestKilledChild(t *testing.T) {
	do := work[os.Getenv("CRANNOG_TEST_WORK")]
	if do == nil {
		return // not started as a child
	}
	n, err := strconv.Atoi(os.Getenv("CRANNOG_TEST_STEP"))
	if err != nil {
		t.Fatal(err)
	}
	host := os.Getenv("CRANNOG_TEST_REGISTRY")
	var stepsLeft atomic.Int64 // atomic, because blobs are pulled concurrently
	stepsLeft.Store(int64(n))
	l := openLibrary(t, os.Getenv("CRANNOG_TEST_LIBRARY"), host, func(o *library.Options) {
		o.Step = func(name string) error {
			if stepsLeft.Add(-1) == 0 {
				fmt.Println("killed before", name)
				return syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			return nil
		}
	})
	if err := do(t, l, host, os.Getenv("CRANNOG_TEST_FILE")); err != nil {
		t.Fatal(err)
	}
}

// P54: a process that is killed before any step of a pull, an import or a removal leaves a library
// in which each named image is complete. The next process continues that work.
func TestLibrarySurvivesKill(t *testing.T) {
	host := imagetest.Registry(t)
	imagetest.Publish(t, host+"/app:1", appImage(t, "new"))
	imagetest.Publish(t, host+"/old:1", appImage(t, "old"))
	file := exportedImage(t, host)
	for what := range work {
		t.Run(what, func(t *testing.T) {
			var before []string
			for n := 1; ; n++ {
				dir := t.TempDir()
				if _, err := openLibrary(t, dir, host).Pull(t.Context(), host+"/old:1", "", ignore); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledChild$", "-test.v")
				cmd.Env = append(os.Environ(), "CRANNOG_TEST_WORK="+what, "CRANNOG_TEST_STEP="+strconv.Itoa(n), "CRANNOG_TEST_LIBRARY="+dir, "CRANNOG_TEST_REGISTRY="+host, "CRANNOG_TEST_FILE="+file)
				out, err := cmd.CombinedOutput()
				_, step, killed := strings.Cut(string(out), "killed before ")
				if !killed {
					if err != nil {
						t.Fatalf("step %d: %v\n%s", n, err, out)
					}
					break
				}
				step, _, _ = strings.Cut(step, "\n")
				before = append(before, step)
				checkAfterKill(t, fmt.Sprintf("killed before step %d, %s", n, step), dir, host, file, what)
			}
			t.Logf("killed before each of %q", before)
			if len(before) < 5 {
				t.Errorf("got only %d steps, want at least 5", len(before))
			}
		})
	}
}

// exportedImage returns a file with an exported image.
func exportedImage(t *testing.T, host string) string {
	t.Helper()
	l := openLibrary(t, t.TempDir(), host)
	if _, err := l.Pull(t.Context(), host+"/app:1", "", ignore); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := l.Export(t.Context(), host+"/app:1", archive.OCI, &b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// checkAfterKill checks a library whose process has died.
func checkAfterKill(t *testing.T, when, dir, host, file, what string) {
	t.Helper()
	l := openLibrary(t, dir, host)
	list, err := l.List()
	if err != nil {
		t.Fatalf("%s: List: error %v", when, err)
	}
	for _, img := range list {
		// All its blobs exist, and a sandbox can start from its tree.
		if err := l.Export(t.Context(), img.Name, archive.OCI, &bytes.Buffer{}); err != nil {
			t.Errorf("%s: export %s: %v", when, img.Name, err)
		}
		template, err := l.ResolveImage(t.Context(), img.Name, false)
		if err != nil {
			t.Errorf("%s: start from %s: %v", when, img.Name, err)
			continue
		}
		want := map[string]string{host + "/app:1": "new", host + "/old:1": "old"}[img.Name]
		if data, err := os.ReadFile(filepath.Join(template.Image.View().Dir, "bin/app")); err != nil || string(data) != want {
			t.Errorf("%s: %s has %q, error %v", when, img.Name, data, err)
		}
	}
	if what != "remove and prune" && len(list) == 0 {
		t.Errorf("%s: the earlier image is missing", when)
	}
	// The next process completes the same work. A name that was being removed is removed.
	if err := work[what](t, l, host, file); err != nil && fault.KindOf(err) != fault.NotFound {
		t.Errorf("%s: again: %v", when, err)
	}
	for _, img := range list {
		if _, err := l.Remove(t.Context(), img.Name); err != nil && fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s: remove: %v", when, err)
		}
	}
	if _, err := l.Remove(t.Context(), host+"/app:1"); err != nil && fault.KindOf(err) != fault.NotFound {
		t.Errorf("%s: remove: %v", when, err)
	}
	// All remaining files are ones that the sweep removes once they are old.
	longAgo := time.Now().Add(-48 * time.Hour)
	for _, dir := range []string{filepath.Join(dir, "roots", ".*"), filepath.Join(dir, "blobs", "drafts", "*"), filepath.Join(dir, "blobs", "sha256", ".*"), filepath.Join(dir, "names", ".*")} {
		found, err := filepath.Glob(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range found {
			if err := os.Chtimes(name, longAgo, longAgo); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	}
	if _, err := l.Prune(t.Context()); err != nil {
		t.Errorf("%s: prune: %v", when, err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("%s: files left after Prune: %v", when, left)
	}
}

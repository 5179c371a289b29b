package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// The crash tests run this test binary as the process that dies.
const (
	crashDir = "CRANNOG_TEST_CRASH_DIR"
	crashAt  = "CRANNOG_TEST_CRASH_AT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := runAllOperations(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rows are the IDs that a caller stores about its images.
type rows map[string]string

func (r rows) find(_ context.Context, id string) (string, error) { return r[id], nil }

// lineage returns the pages of the two images of the crash test.
func lineage() (a, b []byte) {
	a = noise(1, 700)
	clear(a[600*pageBytes : 650*pageBytes])
	b = slices.Clone(a)
	copy(b[50*pageBytes:], noise(2, 100))
	return a, b
}

// runAllOperations takes two images through all operations and records the results.
func runAllOperations(dir string) error {
	left, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		return err
	}
	step := func(string) {
		if left--; left == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	s, err := Open(filepath.Join(dir, "snapshots"), Options{Budget: 1 << 30, step: step})
	if err != nil {
		return err
	}
	ctx := context.Background()
	var reported []Image
	write := func(id, parent string, pages []byte) error {
		d, err := s.Begin(id)
		if err != nil {
			return err
		}
		step("")
		for name, data := range map[string][]byte{StateFile: []byte(id), MetaFile: []byte(id), PagesFile: pages} {
			if err := os.WriteFile(filepath.Join(d.Dir(), name), data, 0o600); err != nil {
				return err
			}
		}
		img, err := d.Commit(ctx, parent, memoryParts)
		if err != nil {
			return err
		}
		reported = append(reported, img)
		data, err := json.Marshal(reported)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "reported"), data, 0o600)
	}
	a, b := lineage()
	if err := write("a", "", a); err != nil {
		return err
	}
	if err := write("b", "a", b); err != nil {
		return err
	}
	if _, err := s.Deduplicate(ctx); err != nil {
		return err
	}
	if _, err := s.dropCopy("b"); err != nil {
		return err
	}
	if _, err := load(ctx, s, "b", reported[1].Sum); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "removing"), nil, 0o600); err != nil {
		return err
	}
	if err := s.Remove(ctx, "a"); err != nil {
		return err
	}
	s.drain()
	_, err = s.Prune(ctx, func(id string) bool { return id == "b" })
	return err
}

// P28: a crash at any step leaves whole images, and no unfinished operation.
func TestACrashAtAnyStepLeavesNoHalfImage(t *testing.T) {
	a, b := lineage()
	n := 1
	for ; ; n++ {
		if n > 100 {
			t.Fatalf("the child still dies at step %d", n)
		}
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAt+"="+strconv.Itoa(n))
		out, err := cmd.CombinedOutput()
		if err != nil && !bytes.Contains([]byte(err.Error()), []byte("killed")) {
			t.Fatalf("step %d: %v\n%s", n, err, out)
		}
		completed := err == nil
		inspect(t, n, dir, map[string][]byte{"a": a, "b": b})
		if completed {
			break
		}
	}
	if n < 25 {
		t.Errorf("got only %d steps, want at least 25", n)
	}
}

func inspect(t *testing.T, n int, dir string, want map[string][]byte) {
	t.Helper()
	var reported []Image
	if data, err := os.ReadFile(filepath.Join(dir, "reported")); err == nil {
		if err := json.Unmarshal(data, &reported); err != nil {
			t.Fatal(err)
		}
	}
	sums := rows{}
	for _, img := range reported {
		sums[img.ID] = img.Sum
	}
	s := open(t, filepath.Join(dir, "snapshots"), Options{Budget: 1 << 30, Sum: sums.find})
	if left, _ := os.ReadDir(filepath.Join(s.dir, draftsDir)); len(left) != 0 {
		t.Errorf("step %d: drafts left: %v", n, left)
	}
	_, err := os.Stat(filepath.Join(dir, "removing"))
	removing := err == nil
	check := func() {
		t.Helper()
		for _, img := range reported {
			got, err := load(t.Context(), s, img.ID, img.Sum)
			if img.ID == "a" && removing && fault.KindOf(err) == fault.NotFound {
				continue
			}
			if err != nil || !bytes.Equal(got, want[img.ID]) {
				t.Fatalf("step %d: image %s: %v", n, img.ID, err)
			}
		}
	}
	check()
	deduplicate(t, s)
	check()
	for _, p := range packs(t, s) {
		needed := false
		for _, img := range reported {
			x, err := s.readIndex(img.ID)
			needed = needed || err == nil && slices.Contains(x.packs, strings.TrimSuffix(filepath.Base(p), ".pages"))
		}
		// Packs of an image that was committed but never reported may remain.
		if ids, _ := s.list(); !needed && len(ids) <= len(reported) {
			t.Errorf("step %d: no image needs %s", n, p)
		}
	}
	if err := s.evict(1 << 60); err != nil {
		t.Fatal(err)
	}
	check()
	// Prune removes an image that was committed and never reported, and everything unneeded.
	if _, err := s.Prune(t.Context(), func(id string) bool { return sums[id] != "" }); err != nil {
		t.Fatalf("step %d: %v", n, err)
	}
	check()
	if _, err := s.Prune(t.Context(), func(string) bool { return false }); err != nil {
		t.Fatalf("step %d: %v", n, err)
	}
	if used, err := s.measure(); err != nil || used != 0 {
		t.Errorf("step %d: %d bytes are left without images, error %v, packs %v", n, used, err, packs(t, s))
	}
}

// Other processes must not remove a draft of a running process.
func TestOnlyDraftsOfTheDeadAreDropped(t *testing.T) {
	s := newImages(t)
	d, err := s.Begin("a")
	if err != nil {
		t.Fatal(err)
	}
	open(t, s.dir, Options{Budget: 1 << 30})
	if _, err := os.Stat(d.Dir()); err != nil {
		t.Fatal("the draft of a running process was removed")
	}
	// As with a process that has ended, the descriptor and its lock are gone.
	d.dir.Close()
	open(t, s.dir, Options{Budget: 1 << 30})
	if _, err := os.Stat(d.Dir()); err == nil {
		t.Fatal("a dead process's draft is still there")
	}
}

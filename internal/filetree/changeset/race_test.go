package changeset_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// startSwapping exchanges a directory and a link to another directory again and again until stop is
// called. It counts the swaps.
func startSwapping(t *testing.T, dir, link string) (swaps *atomic.Int64, stop func()) {
	t.Helper()
	var n atomic.Int64
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
				t.Errorf("swap: %v", err)
				return
			}
			n.Add(1)
		}
	}()
	return &n, func() { close(end); <-done }
}

// minSwaps is the minimum number of swaps. It is higher in make test-full.
func minSwaps() int64 {
	if hosttest.Full() {
		return 100_000
	}
	return 20_000
}

// P36: even if a host directory is replaced by a link during a comparison or an
// apply, nothing behind the link is read, written or removed.
func TestApplyNeverFollowsSwappedLinks(t *testing.T) {
	b := newTreeTest(t, map[string]string{"d/changed": "1", "d/removed": "1", "d/mode": "1", "d/deep/calm": "1", "calm": "1"})
	canary := filepath.Join(filepath.Dir(b.host), "canary")
	writeTree(t, canary, map[string]string{"changed": "canary", "removed": "canary", "mode": "canary", "link": "-> canary", "sub/x": "canary", "deep/calm": "1"})
	untouched := describeTree(t, canary, true)
	writeTree(t, b.host, map[string]string{"l": "-> " + canary})
	put(t, filepath.Join(b.inside, "d/changed"), "22")
	remove(t, filepath.Join(b.inside, "d/removed"))
	if err := os.Chmod(filepath.Join(b.inside, "d/mode"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTree(t, b.inside, map[string]string{"d/created": "22", "d/sub/x": "22", "d/link": "-> changed", "d/deep/new": "22"})

	swaps, stop := startSwapping(t, filepath.Join(b.host, "d"), filepath.Join(b.host, "l"))
	applied, refused := 0, 0
	for swaps.Load() < minSwaps() || applied == 0 || refused < 60 {
		set := b.compare(t)
		for _, c := range set.Changes {
			if strings.Contains(c.Text, "-canary") {
				t.Fatalf("%s shows a file behind the link:\n%s", c.Path, c.Text)
			}
		}
		chosen, _ := changeset.Select(set.Changes, func(c changeset.Change) bool { return c.Path != "l" && c.Path != "d" })
		switch _, err := b.apply(t, chosen, true); {
		case err == nil:
			applied++
			// Undo the changes for the next round. d and l may be exchanged now.
			for _, name := range []string{"d", "l"} {
				_ = b.root.Remove(name + "/created")
				_ = b.root.Remove(name + "/deep/new")
				_ = b.root.WriteFile(name+"/removed", []byte("1"), 0o644)
			}
		case fault.CodeOf(err) == "changes_conflict":
			refused++
		default:
			t.Fatal(err)
		}
	}
	stop()
	if d := diffTrees(untouched, describeTree(t, canary, true)); d != "" {
		t.Fatalf("the canary was touched:\n%s", d)
	}
	t.Logf("%d swaps, %d times applied, %d refused", swaps.Load(), applied, refused)
	b.checkClean(t)
}

// Control: a program that checks a path and then opens it by name writes through the link.
func TestSwapRaceControl(t *testing.T) {
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"d/": "", "canary/": "", "l": "-> canary"})
	_, stop := startSwapping(t, filepath.Join(dir, "d"), filepath.Join(dir, "l"))
	defer stop()
	for {
		if info, err := os.Lstat(filepath.Join(dir, "d")); err != nil || !info.IsDir() {
			continue // not the directory at the moment
		}
		_ = os.WriteFile(filepath.Join(dir, "d", "x"), nil, 0o600)
		if _, err := os.Lstat(filepath.Join(dir, "canary", "x")); err == nil {
			return
		}
	}
}

// P36: if a program replaces directories by links while its files are listed and packed, no file
// behind a link is shown or exported.
func TestPackNeverFollowsSwappedLinks(t *testing.T) {
	b := newTreeTest(t, map[string]string{"d/file": "1"})
	elsewhere := filepath.Join(filepath.Dir(b.host), "elsewhere")
	writeTree(t, elsewhere, map[string]string{"file": "canary", "other": "canary"})
	put(t, filepath.Join(b.inside, "d/file"), "changed\n")
	writeTree(t, b.inside, map[string]string{"l": "-> " + elsewhere, "f": "changed\n", "fl": "-> " + elsewhere + "/file"})
	untouched := describeTree(t, elsewhere, true)
	staged := t.TempDir()
	into, err := os.OpenRoot(staged)
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	want := []changeset.Change{file("d/file", "changed\n"), file("f", "changed\n")}

	_, stopFiles := startSwapping(t, filepath.Join(b.inside, "f"), filepath.Join(b.inside, "fl"))
	defer stopFiles()
	swaps, stop := startSwapping(t, filepath.Join(b.inside, "d"), filepath.Join(b.inside, "l"))
	packed, refused := 0, 0
	for swaps.Load() < minSwaps() || packed == 0 || refused == 0 {
		r, err := b.source.Tree(context.Background(), changeset.TreeRequest{Dir: "/workspace", Sums: true, SumBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		all, err := changeset.ReadTree(r, changeset.Bounds{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Sum == sumOf("canary") || strings.HasSuffix(e.Path, "other") {
				t.Fatalf("the list has a file of the other directory: %+v", e)
			}
		}
		switch _, err := changeset.Stage(context.Background(), b.source, "/workspace", want, into, changeset.Bounds{}); {
		case err == nil:
			packed++
		case fault.CodeOf(err) == "changes_moved":
			refused++
		default:
			t.Fatal(err)
		}
		// A pack that was refused must not contain files of the other directory either.
		for _, name := range []string{"0", "1"} {
			if text, err := into.ReadFile(name); err == nil && string(text) == "canary" {
				t.Fatal("the pack has a file of the other directory")
			}
			_ = into.Remove(name)
		}
	}
	stop()
	if d := diffTrees(untouched, describeTree(t, elsewhere, true)); d != "" {
		t.Fatalf("the other directory was touched:\n%s", d)
	}
	t.Logf("%d swaps, %d times packed, %d refused", swaps.Load(), packed, refused)
}

package changeset_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// ownerOf returns the user ID of a file's owner.
func ownerOf(t *testing.T, name string) uint32 {
	t.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

// An Apply as root creates files with the owner of the directory, and replaced files keep their
// owner.
func TestApplySetsOwnerOfDirectory(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	b := newTreeTest(t, map[string]string{"theirs": "1", "another's": "1"})
	for name, uid := range map[string]int{"": 61234, "theirs": 61234, "another's": 61235} {
		if err := os.Chown(filepath.Join(b.host, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := changeset.Walk(t.Context(), b.root, changeset.Bounds{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.base.Start = entries
	writeTree(t, b.inside, map[string]string{"theirs": "22", "another's": "22", "new/file": "22", "link": "-> theirs"})
	if _, err := b.apply(t, b.compare(t).Changes, false); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"theirs": 61234, "another's": 61235, "new": 61234, "new/file": 61234, "link": 61234} {
		if got := ownerOf(t, filepath.Join(b.host, name)); got != want {
			t.Errorf("%s: got owner %d, want %d", name, got, want)
		}
	}
}

// A file on another file system cannot be replaced atomically, so Apply applies no file.
func TestApplyRejectsOtherFileSystem(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	b := newTreeTest(t, map[string]string{"a": "1", "mounted/": ""})
	at := filepath.Join(b.host, "mounted")
	if err := unix.Mount("none", at, "tmpfs", 0, "mode=755"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	writeTree(t, b.inside, map[string]string{"a": "22", "mounted/new": "22"})
	set := b.compare(t)
	before := describeTree(t, b.host, true)
	if _, err := b.apply(t, set.Changes, false); fault.CodeOf(err) != "changes_elsewhere" {
		t.Errorf("Apply: got %v, want changes_elsewhere", err)
	}
	if d := diffTrees(before, describeTree(t, b.host, true)); d != "" {
		t.Errorf("the refused Apply has changed files:\n%s", d)
	}
	chosen, _ := changeset.Select(b.compare(t).Changes, func(c changeset.Change) bool { return c.Path == "a" })
	if _, err := b.apply(t, chosen, false); err != nil {
		t.Errorf("control: %v", err)
	}
	b.checkClean(t)
}

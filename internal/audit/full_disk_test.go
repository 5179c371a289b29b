package audit

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// smallDisk mounts a small file system.
func smallDisk(t *testing.T) string {
	t.Helper()
	hosttest.Need(t, hosttest.Root)
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fillDisk fills the disk, and returns a function that frees it.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// bigDraft returns an entry that needs a new block on the disk.
func bigDraft(i int) Draft {
	noise := make([]byte, 9000)
	rand.Read(noise)
	return Draft{Kind: Action, Data: map[string]any{"n": i, "noise": base64.StdEncoding.EncodeToString(noise)}}
}

// P31: while the log cannot be written, required entries are rejected and do not appear in the log
// later.
func TestFullDiskRejectsRequiredEntries(t *testing.T) {
	disk := smallDisk(t)
	l := openLog(t, Options{Dir: filepath.Join(disk, "record"), Log: quiet()})
	if err := l.Append(t.Context(), bigDraft(0)); err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, disk)
	for range 3 {
		err := l.Append(t.Context(), bigDraft(1), bigDraft(2))
		if fault.CodeOf(err) != codeUnavailable || fault.KindOf(err) != fault.Exhausted || fault.HintOf(err) == "" {
			t.Fatalf("append on a full disk: %v", err)
		}
	}
	// The queue has noticed the failure, so a note is rejected at once.
	if err := l.Note(bigDraft(3)); fault.CodeOf(err) != codeUnavailable {
		t.Errorf("note on a full disk: %v", err)
	}
	if st := l.Status(); st.Failing == nil || st.Queued != 0 {
		t.Errorf("status on a full disk: got %+v, want Failing and nothing queued", st)
	}
	free()
	if err := l.Append(t.Context(), bigDraft(4)); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
	if err := l.Note(bigDraft(5)); err != nil {
		t.Fatalf("after space was freed: %v", err)
	}
	if got := readAll(t, l, Filter{}); len(got) != 3 {
		t.Errorf("%d entries, want 3", len(got))
	}
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Errorf("Verify: got %+v, %v, want OK", v, err)
	}
}

// Entries that were accepted before the disk filled are written when there is space. The log then
// accepts notes again by itself.
func TestAcceptedEntriesAreWrittenOnceThereIsSpace(t *testing.T) {
	disk := smallDisk(t)
	l := openLog(t, Options{Dir: filepath.Join(disk, "record"), Log: quiet()})
	if err := l.Append(t.Context(), bigDraft(0)); err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, disk)
	if err := l.Note(bigDraft(1)); err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the log reports the failure", func() bool { return l.Status().Failing != nil })
	if err := l.Note(bigDraft(2)); fault.CodeOf(err) != codeUnavailable {
		t.Fatalf("note on a full disk: got %v, want %s", err, codeUnavailable)
	}
	if st := l.Status(); st.Queued != 1 {
		t.Errorf("status on a full disk: got %+v, want one queued entry", st)
	}
	free()
	hosttest.Eventually(t, "the log accepts entries again", func() bool { return l.Note(bigDraft(3)) == nil })
	if got := readAll(t, l, Filter{}); len(got) != 3 {
		t.Errorf("%d entries, want 3", len(got))
	}
}

// A probe notices free space even if nothing is queued.
func TestNotesAreAcceptedAgainWithAnEmptyQueue(t *testing.T) {
	disk := smallDisk(t)
	l := openLog(t, Options{Dir: filepath.Join(disk, "record"), Log: quiet()})
	if err := l.Append(t.Context(), bigDraft(0)); err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, disk)
	if err := l.Append(t.Context(), bigDraft(1)); err == nil {
		t.Fatal("Append on a full disk returned no error")
	}
	free()
	hosttest.Eventually(t, "the log accepts entries again", func() bool { return l.Note(bigDraft(2)) == nil })
	if got := readAll(t, l, Filter{}); len(got) != 2 {
		t.Errorf("%d entries, want 2", len(got))
	}
}

// Close returns the number of accepted entries that are lost.
func TestCloseReportsLostEntries(t *testing.T) {
	disk := smallDisk(t)
	l := openLog(t, Options{Dir: filepath.Join(disk, "record"), Log: quiet()})
	if err := l.Append(t.Context(), bigDraft(0)); err != nil {
		t.Fatal(err)
	}
	free := fillDisk(t, disk)
	if err := l.Note(bigDraft(1), bigDraft(2)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err == nil || fault.CodeOf(err) != codeUnavailable {
		t.Errorf("Close with lost entries: got %v, want %s", err, codeUnavailable)
	}
	free()
}

// If a tree head cannot be written, its caller gets an error. The entries that were written with it
// are in the log exactly once, and their callers get no error.
func TestFailedTreeHeadNeitherRejectsNorDuplicatesEntries(t *testing.T) {
	l := openLog(t, Options{Log: quiet()})
	if err := l.Append(t.Context(), bigDraft(0)); err != nil {
		t.Fatal(err)
	}
	// A directory has the name of the file of tree heads.
	path := l.path(checkpointsName)
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := l.Note(bigDraft(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Checkpoint(t.Context()); fault.CodeOf(err) != codeUnavailable {
		t.Fatalf("Checkpoint that cannot be stored: got %v, want %s", err, codeUnavailable)
	}
	if st := l.Status(); st.Failing != nil || st.Queued != 0 {
		t.Errorf("status after the failed tree head: got %+v, want no failure and nothing queued", st)
	}
	if err := l.Append(t.Context(), bigDraft(2)); err != nil {
		t.Errorf("Append after the failed tree head: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, l, Filter{}); len(got) != 3 {
		t.Errorf("%d entries, want 3", len(got))
	}
}

package watch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// newManualWatcher returns a watcher that does not read events. A test calls handleAll between its
// changes of the disk.
func newManualWatcher(t *testing.T, root string, recursive bool) *Watcher {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	w := &Watcher{
		root: root, recursive: recursive, as: direct, file: os.NewFile(uintptr(fd), "inotify"),
		events: make(chan Event, 64), closed: make(chan struct{}), finished: make(chan struct{}),
		dirs: map[int]string{}, wds: map[string]int{}, reportedEarly: map[string]map[string]struct{}{},
	}
	t.Cleanup(func() { w.file.Close() })
	if err := w.addTree(fd, ".", nil); err != nil {
		t.Fatal(err)
	}
	return w
}

// handleAll handles the queued events of the kernel and returns the reported events.
func handleAll(t *testing.T, w *Watcher) []Event {
	t.Helper()
	buf := make([]byte, 16<<10)
	n, err := w.file.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.handle(int(w.file.Fd()), buf[:n]); err != nil {
		t.Fatal(err)
	}
	return reported(w)
}

// reported returns the events that are reported.
func reported(w *Watcher) []Event {
	var all []Event
	for len(w.events) > 0 {
		all = append(all, <-w.events)
	}
	return all
}

// wantEvents checks the reported events.
func wantEvents(t *testing.T, got []Event, want ...Event) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("reported events: got %v, want %v", got, want)
	}
}

func TestEventsAreReported(t *testing.T) {
	w := newManualWatcher(t, t.TempDir(), false)
	wd := int32(w.wds["."])
	for mask, want := range map[uint32]Op{
		unix.IN_CREATE: Create, unix.IN_MOVED_TO: Create, unix.IN_MODIFY: Write, unix.IN_ATTRIB: Chmod, unix.IN_DELETE: Remove, unix.IN_MOVED_FROM: Rename,
	} {
		if err := w.handle(-1, encodeEvent(wd, mask, "f")); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, reported(w), Event{"f", want})
	}
	for mask, want := range map[uint32]Op{unix.IN_DELETE_SELF: Remove, unix.IN_MOVE_SELF: Rename, unix.IN_ATTRIB: Chmod} {
		if err := w.handle(-1, encodeEvent(wd, mask, "")); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, reported(w), Event{".", want})
	}
	// Other masks, events of unknown directories and truncated events are not reported.
	for _, buf := range [][]byte{encodeEvent(wd, unix.IN_OPEN, "f"), encodeEvent(wd+100, unix.IN_CREATE, "f"), encodeEvent(wd, unix.IN_CREATE, "f")[:20]} {
		if err := w.handle(-1, buf); err != nil {
			t.Fatal(err)
		}
		wantEvents(t, reported(w))
	}
}

// Entries that were created in a new directory before it was watched are reported once, even if the
// kernel reports them too.
func TestEarlyEntriesAreReportedOnce(t *testing.T) {
	root := t.TempDir()
	w := newManualWatcher(t, root, true)
	if err := os.MkdirAll(filepath.Join(root, "d/e"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, handleAll(t, w), Event{"d", Create}, Event{"d/e", Create})
	fd := int(w.file.Fd())
	if err := w.handle(fd, encodeEvent(int32(w.wds["d"]), unix.IN_CREATE|unix.IN_ISDIR, "e")); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, reported(w))
	if len(w.reportedEarly) != 0 {
		t.Errorf("names are stored after their event: %v", w.reportedEarly)
	}
	// Events of the directory itself are ignored, because its parent directory has them too.
	if err := w.handle(fd, encodeEvent(int32(w.wds["d"]), unix.IN_ATTRIB, "")); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, reported(w))
}

// A directory that is moved away may be moved to a place that the user cannot read, so none of its
// events are reported any more.
func TestMovedDirectoryIsNotWatched(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "d/e"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := newManualWatcher(t, root, true)
	if err := os.Rename(filepath.Join(root, "d"), filepath.Join(other, "d")); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, handleAll(t, w), Event{"d", Rename})
	if len(w.dirs) != 1 || len(w.wds) != 1 {
		t.Errorf("got the watched directories %v, want only the root", w.dirs)
	}
	if err := os.WriteFile(filepath.Join(other, "d/e/f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(other, "d"), filepath.Join(root, "back")); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, handleAll(t, w), Event{"back", Create})
	if _, ok := w.wds["back/e"]; !ok {
		t.Errorf("the directory that was moved back is not watched: %v", w.wds)
	}
}

func TestRemovedRootEndsTheWatcher(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	w := open(t, root, false)
	if err := os.Remove(root); err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got != (Event{".", Remove}) {
		t.Errorf("event of the removed root: got %v, want Remove of the root", got)
	}
	if err := w.Err(); !errors.Is(err, ErrRoot) {
		t.Errorf("got %v, want ErrRoot", err)
	}
}

func TestTooManyDirectories(t *testing.T) {
	root := t.TempDir()
	w := newManualWatcher(t, root, true)
	for i := range maxDirs - 1 {
		w.dirs[-1-i] = strconv.Itoa(i)
	}
	if err := os.Mkdir(filepath.Join(root, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := w.file.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.handle(int(w.file.Fd()), buf[:n]); !errors.Is(err, ErrTooMany) {
		t.Errorf("handle with too many directories: got %v, want ErrTooMany", err)
	}
}

// The root must be watched. Below it, another process may remove or replace a directory at any
// time.
func TestErrorsBelowTheRootAreTolerated(t *testing.T) {
	w := newManualWatcher(t, t.TempDir(), true)
	for _, err := range []error{os.ErrNotExist, os.ErrPermission, unix.ENOTDIR} {
		if got := w.tolerate("d", err); got != nil {
			t.Errorf("below the root: got %v", got)
		}
		if got := w.tolerate(".", err); !errors.Is(got, err) {
			t.Errorf("root: got %v, want %v", got, err)
		}
	}
	if got := w.tolerate("d", unix.EIO); !errors.Is(got, unix.EIO) {
		t.Errorf("other error: got %v", got)
	}
	// The directory was removed before its event is handled.
	if err := w.handle(int(w.file.Fd()), encodeEvent(int32(w.wds["."]), unix.IN_MOVED_TO|unix.IN_ISDIR, "gone")); err != nil {
		t.Error(err)
	}
	wantEvents(t, reported(w), Event{"gone", Create})
}

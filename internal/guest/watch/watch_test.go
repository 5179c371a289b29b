package watch

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// direct runs a function without changing the user.
func direct(do func() error) error { return do() }

// open returns a watcher that is closed after the test.
func open(t testing.TB, root string, recursive bool) *Watcher {
	t.Helper()
	w, err := New(root, recursive, direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// next waits for one event.
func next(t *testing.T, w *Watcher) Event {
	t.Helper()
	select {
	case e, ok := <-w.Events():
		if !ok {
			t.Fatalf("the watcher ended with %v", w.Err())
		}
		return e
	case <-hosttest.Late():
		t.Fatal("got no event")
	}
	return Event{}
}

func TestOverflowIsAnError(t *testing.T) {
	w := open(t, t.TempDir(), false)
	if err := w.handle(-1, encodeEvent(-1, unix.IN_Q_OVERFLOW, "")); !errors.Is(err, ErrOverflow) {
		t.Errorf("handle of an overflow: got %v, want ErrOverflow", err)
	}
}

// encodeEvent encodes an event as the kernel does.
func encodeEvent(wd int32, mask uint32, name string) []byte {
	length := (len(name) + 16) &^ 15
	buf := make([]byte, unix.SizeofInotifyEvent+length)
	binary.NativeEndian.PutUint32(buf, uint32(wd))
	binary.NativeEndian.PutUint32(buf[4:], mask)
	binary.NativeEndian.PutUint32(buf[12:], uint32(length))
	copy(buf[unix.SizeofInotifyEvent:], name)
	return buf
}

// An entry that was found in a directory before the kernel's event is reported once, and again if
// it is created again.
func TestFoundEntriesAreReportedOnce(t *testing.T) {
	root := t.TempDir()
	w := open(t, root, true)
	if err := os.MkdirAll(filepath.Join(root, "d/e"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Event{{"d", Create}, {"d/e", Create}} {
		if got := next(t, w); got != want {
			t.Fatalf("reported event: got %v, want %v", got, want)
		}
	}
	for range 2 {
		if err := os.Remove(filepath.Join(root, "d/e")); err != nil {
			t.Fatal(err)
		}
		if got := next(t, w); got != (Event{"d/e", Remove}) {
			t.Fatalf("event: got %v, want Remove of d/e", got)
		}
		if err := os.Mkdir(filepath.Join(root, "d/e"), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := next(t, w); got != (Event{"d/e", Create}) {
			t.Fatalf("event: got %v, want Create of d/e", got)
		}
	}
}

// A new link to a directory is reported, but its target is not watched.
func TestLinksAreNotFollowed(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	w := open(t, root, true)
	if err := os.Symlink(other, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got != (Event{"link", Create}) {
		t.Fatalf("event: got %v, want Create of link", got)
	}
	if err := os.WriteFile(filepath.Join(other, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "last"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := next(t, w); got != (Event{"last", Create}) {
		t.Errorf("event: got %v, want Create of last", got)
	}
}

func TestCloseLeavesNoGoroutines(t *testing.T) {
	root := t.TempDir()
	before := runtime.NumGoroutine()
	for range 20 {
		w := open(t, root, true)
		// The test does not receive events, so the watcher blocks while it sends one.
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(root, string(rune('a'+i%26))), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		w.Close()
		if err := w.Err(); err != nil {
			t.Errorf("after Close: got %v", err)
		}
	}
	hosttest.EventuallyAtMost(t, "goroutines", before, runtime.NumGoroutine)
	if _, err := New(filepath.Join(root, "nope"), false, direct); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: got %v", err)
	}
}

// FuzzHandle checks that handle does not crash, whatever the kernel of the sandbox writes.
func FuzzHandle(f *testing.F) {
	f.Add(encodeEvent(1, unix.IN_CREATE, "name"))
	f.Add(encodeEvent(1, unix.IN_CREATE|unix.IN_ISDIR, "../../x"))
	f.Add(append(encodeEvent(1, unix.IN_MOVED_FROM|unix.IN_ISDIR, "d"), encodeEvent(1, unix.IN_IGNORED, "")...))
	f.Add([]byte{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, buf []byte) {
		w := open(t, t.TempDir(), false)
		go func() {
			for range w.Events() {
			}
		}()
		_ = w.handle(-1, buf) // it may return an error
	})
}

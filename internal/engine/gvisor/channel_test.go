package gvisor

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// withFullChannel returns a sandbox whose channel is full because its guest does not read.
func withFullChannel(t *testing.T) *instance {
	t.Helper()
	b := newInstance(&Engine{log: slog.New(slog.DiscardHandler)}, record{ID: "box", Kernel: "k"}, t.TempDir())
	for _, name := range []string{toGuestName, fromGuestName} {
		if err := unix.Mkfifo(filepath.Join(b.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pipe, err := os.OpenFile(filepath.Join(b.dir, toGuestName), unix.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pipe.Close() })
	enlarge(pipe) // like openChannel: a full pipe then stays full
	if err := pipe.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for page := make([]byte, 4096); err == nil; {
		_, err = pipe.Write(page)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return b
}

// wantEnd checks that an operation ends.
func wantEnd(t *testing.T, name string, do func()) {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	select {
	case <-ended:
	case <-hosttest.Late():
		t.Fatalf("%s does not end", name)
	}
}

// A checkpoint does not wait for a guest that does not read its channel.
func TestRemindGuestWithFullChannel(t *testing.T) {
	b := withFullChannel(t)
	wantEnd(t, "remindGuest", b.remindGuest)
}

// The end of a sandbox does not wait for a channel that is being opened. Opening the channel ends
// as well.
func TestEndWhileFullChannelIsOpened(t *testing.T) {
	b := withFullChannel(t)
	opened := make(chan bool, 1)
	go func() { opened <- b.openedChannel(t.Context()) != nil }()
	hosttest.Eventually(t, "the opening has begun", func() bool { return len(b.opening) > 0 })
	time.Sleep(50 * time.Millisecond)
	wantEnd(t, "the sandbox", func() { b.ended(nil) })
	select {
	case ok := <-opened:
		if ok {
			t.Error("a channel without a reader was opened")
		}
	case <-hosttest.Late():
		t.Error("the opening does not end")
	}
}

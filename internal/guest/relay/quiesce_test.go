package relay

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// markedInside is an inside that counts marks.
type markedInside struct {
	inside
	marks chan struct{}
}

func (m markedInside) Marked() { m.marks <- struct{}{} }

// While a channel is quiet, the guest has read whole frames only, and the streams continue afterwards.
func TestQuiesceMarksEndOfFrames(t *testing.T) {
	f := newFifo(t)
	marks := make(chan struct{}, 100)
	go func() { _ = ServeChannel(f.fromHost, f.toHost, markedInside{marks: marks}) }()
	read, write := f.open(t)
	c, err := NewSocketChannel(read, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { echo(t, c, 1+i%2, 400_000) })
	}
	for range 20 {
		release, err := c.Quiesce()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-marks:
		case <-hosttest.Late():
			t.Fatal("the guest does not read the mark")
		}
		release()
	}
	all.Wait()
}

// A quiet channel sends nothing, not even reminders, and what it sent before is a sequence of whole
// frames with the mark at its end.
func TestQuietChannelSendsNothing(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer theirs.Close()
	c, err := NewSocketChannel(ours, ours)
	if err != nil {
		t.Fatal(err)
	}
	release, err := c.Quiesce()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = c.conn.Write([]byte("late"))
	}()
	want := frameHeader + nonceSize + frameHeader // the greeting and the mark
	data := make([]byte, want)
	if _, err := io.ReadFull(theirs, data); err != nil {
		t.Fatal(err)
	}
	if binary.BigEndian.Uint16(data[want-frameHeader:]) != mark {
		t.Errorf("sent %x, want a mark at the end", data)
	}
	if n, err := unix.Read(int(theirs.Fd()), make([]byte, 1)); err != unix.EAGAIN {
		t.Errorf("a quiet channel sent %d bytes, %v", n, err)
	}
	release()
	<-written
	rest := make([]byte, frameHeader+4)
	if _, err := io.ReadFull(theirs, rest); err != nil || !bytes.HasSuffix(rest, []byte("late")) {
		t.Errorf("after the release: got %q, %v", rest, err)
	}
}

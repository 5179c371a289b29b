package relay

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// F29: complete frames are written together. Each write has whole pages or less than one page, so
// that a host process that ends leaves no partial frame.
func TestF29FramesAreWrittenTogether(t *testing.T) {
	const whole = fullFrame - frameHeader
	data := bytes.Repeat([]byte("abc"), (batchFrames+2)*whole/3+100)
	got, sizes := capture(t, len(data), func(h *hostEnd) { h.Write(data) })
	if !bytes.Equal(got, data) || len(sizes) != 3 || sizes[0] != batchFrames*fullFrame {
		t.Errorf("got %d bytes in writes of %v", len(got), sizes)
	}
}

// F29: the header of a session is sent in the first frame of its data. A separate write would wake
// the peer although it has nothing to do yet.
func TestF29HeadersAreInTheFirstFrame(t *testing.T) {
	const whole = fullFrame - frameHeader
	head, data := sessionFrame(typeData, 2*whole), bytes.Repeat([]byte{7}, 2*whole)
	all := append(bytes.Clone(head), data...)
	got, sizes := capture(t, len(all), func(h *hostEnd) {
		j := &joiner{Conn: h, both: h.writeBoth}
		for _, b := range [][]byte{head, data} {
			if n, err := j.Write(b); n != len(b) || err != nil {
				t.Errorf("wrote %d of %d: %v", n, len(b), err)
			}
		}
	})
	if !bytes.Equal(got, all) || !slices.Equal(sizes, []int{2 * fullFrame, frameHeader + len(head)}) {
		t.Errorf("got %d bytes in writes of %v", len(got), sizes)
	}
}

// capture returns the data that a host's end writes, without the frame headers, and the sizes of
// the writes.
func capture(t *testing.T, size int, write func(*hostEnd)) (got []byte, sizes []int) {
	t.Helper()
	// This type of socket preserves the boundaries of writes.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	h := &hostEnd{pipes: pipes{read: ours, write: ours}, wrote: func() {}}
	go write(h)
	for len(got) < size {
		buf := make([]byte, 1<<20)
		n, err := theirs.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, n)
		for b := buf[:n]; len(b) > 0; {
			size := int(binary.BigEndian.Uint16(b))
			got = append(got, b[frameHeader:frameHeader+size]...)
			b = b[frameHeader+size:]
		}
		if n > fullFrame && n%fullFrame != 0 {
			t.Errorf("got a write of %d bytes", n)
		}
	}
	return got, sizes
}

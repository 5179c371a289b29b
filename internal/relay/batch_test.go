package relay

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// F29: whole frames are written together, and each write is of whole pages or less
// than one, so that a host that dies leaves no half frame.
func TestF29FramesAreWrittenTogether(t *testing.T) {
	// This kind of socket keeps writes apart.
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer ours.Close()
	defer theirs.Close()
	h := &hostEnd{pipes: pipes{read: ours, write: ours}, wrote: func() {}}
	const whole = wholeBytes - frameHeader
	data := bytes.Repeat([]byte("abc"), (batchFrames+2)*whole/3+100)
	go h.Write(data)
	var got []byte
	var sizes []int
	for len(got) < len(data) {
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
		if n > wholeBytes && n%wholeBytes != 0 {
			t.Errorf("a write of %d bytes", n)
		}
	}
	if !bytes.Equal(got, data) || len(sizes) != 3 || sizes[0] != batchFrames*wholeBytes {
		t.Errorf("%d bytes in writes of %v", len(got), sizes)
	}
}

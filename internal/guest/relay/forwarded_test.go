package relay

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// F29: gVisor's port forwarding may miss data. The guest announces again that there is something to
// read, after each write and after growing pauses, and stops with the stream.
func TestF29GuestRepeatsTheAnnouncement(t *testing.T) {
	program, plain := net.Pipe()
	host, channel := net.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		forwarded(plain, channel)
	}()
	if err := host.SetDeadline(time.Now().Add(hosttest.Patience(hosttest.Hang))); err != nil {
		t.Fatal(err)
	}
	header := make([]byte, headerSize)
	next := func() (kind byte, n int) {
		t.Helper()
		if _, err := io.ReadFull(host, header); err != nil {
			t.Fatal(err)
		}
		return header[0], int(binary.BigEndian.Uint32(header) & 0xffffff)
	}
	// The answer to the port's number was written before.
	for range 2 {
		if kind, n := next(); kind != kindTaken || n != 0 {
			t.Fatalf("kind %d, %d", kind, n)
		}
	}
	if _, err := program.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	kind, n := next()
	for kind == kindTaken && n == 0 {
		kind, n = next() // from before the data
	}
	if kind != kindData || n != 4 {
		t.Fatalf("kind %d, %d", kind, n)
	}
	if _, err := io.ReadFull(host, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if kind, n := next(); kind != kindTaken || n != 0 {
		t.Errorf("after the data kind %d, %d", kind, n)
	}
	host.Close()
	<-ended
}

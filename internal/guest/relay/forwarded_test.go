package relay

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// F29: gVisor's port forwarding may miss data. After each write, the guest sends reminders with
// growing pauses until the stream ends.
func TestF29GuestRemindsTheHost(t *testing.T) {
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
	// The first reminders are for the answer to the port number.
	for range 2 {
		if kind, n := next(); kind != kindReport || n != 0 {
			t.Fatalf("got kind %d, length %d, want a reminder", kind, n)
		}
	}
	if _, err := program.Write([]byte("data")); err != nil {
		t.Fatal(err)
	}
	kind, n := next()
	for kind == kindReport && n == 0 {
		kind, n = next() // a reminder from before the data
	}
	if kind != kindData || n != 4 {
		t.Fatalf("got kind %d, length %d, want the data", kind, n)
	}
	if _, err := io.ReadFull(host, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if kind, n := next(); kind != kindReport || n != 0 {
		t.Errorf("after the data: got kind %d, length %d, want a reminder", kind, n)
	}
	host.Close()
	<-ended
}

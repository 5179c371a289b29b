package lifecycle

import (
	"errors"
	"net"
	"testing"
)

func TestStreamStopsReadingAtEnd(t *testing.T) {
	local, remote := net.Pipe()
	defer local.Close()
	defer remote.Close()
	gone := make(chan struct{})
	c := &stream{local, gone}
	send := func(text string) { go func() { _, _ = remote.Write([]byte(text)) }() }
	read := func() (string, error) {
		p := make([]byte, 10)
		n, err := c.Read(p)
		return string(p[:n]), err
	}
	send("before")
	if got, err := read(); got != "before" || err != nil {
		t.Fatalf("control: %q, %v", got, err)
	}
	close(gone)
	send("after")
	if got, err := read(); got != "" || !errors.Is(err, net.ErrClosed) {
		t.Errorf("data sent after the end is read: %q, %v", got, err)
	}
}

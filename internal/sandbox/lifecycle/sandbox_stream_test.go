package lifecycle

import (
	"errors"
	"net"
	"testing"
)

func TestNothingIsReadOfASandboxThatWent(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	gone := make(chan struct{})
	c := &stream{near, gone}
	say := func(text string) { go func() { _, _ = far.Write([]byte(text)) }() }
	read := func() (string, error) {
		p := make([]byte, 10)
		n, err := c.Read(p)
		return string(p[:n]), err
	}
	say("before")
	if got, err := read(); got != "before" || err != nil {
		t.Fatalf("control: %q, %v", got, err)
	}
	close(gone)
	say("after")
	if got, err := read(); got != "" || !errors.Is(err, net.ErrClosed) {
		t.Errorf("what was said afterwards is read: %q, %v", got, err)
	}
}

package guestmain

import (
	"bufio"
	"errors"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/relay"
)

// channelPair is an engine's end of a channel and the guest's two.
func channelPair(t *testing.T) (*relay.Channel, []*os.File) {
	t.Helper()
	in, toGuest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromGuest, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := relay.NewChannel(fromGuest, toGuest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, []*os.File{in, out}
}

// The stream that came with the guest leads to the guest. TestFirstProcess
// sees that no program inside has its descriptor.
func TestFirstChannel(t *testing.T) {
	r := boot(t, config())
	conn, err := r.first.Dial(t.Context(), engine.GuestPort)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://guest/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("%s", res.Status)
	}
}

// On the first stream too, a port without a listener is refused.
func TestFirstChannelRefuses(t *testing.T) {
	r := boot(t, config())
	if _, err := r.first.Dial(t.Context(), 9); !errors.Is(err, relay.ErrRefused) {
		t.Errorf("%v", err)
	}
}

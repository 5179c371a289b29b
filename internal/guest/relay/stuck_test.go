package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// stuck returns a channel whose guest has answered the greeting and then reads nothing. Its pipe is
// full.
func stuck(t *testing.T) (*Channel, *fifo) {
	t.Helper()
	f := newFifo(t)
	c := host(t, f)
	greeted := make([]byte, frameHeader+nonceSize)
	if _, err := io.ReadFull(f.fromHost, greeted); err != nil {
		t.Fatal(err)
	}
	if _, err := f.toHost.Write(greeted[frameHeader:]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	fill(t, c.conn.write)
	return c, f
}

// fill fills a pipe.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	if err := pipe.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var err error
	for page := make([]byte, fullFrame); err == nil; {
		_, err = pipe.Write(page)
	}
	if err := pipe.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// openingStreams returns the number of streams that are being opened.
func openingStreams() int {
	stacks := make([]byte, 4<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "relay.(*Channel).begin.func")
}

// checkNoneOpening checks that no stream is being opened any more.
func checkNoneOpening(t *testing.T) {
	t.Helper()
	hosttest.EventuallyAtMost(t, "streams that are being opened", 0, openingStreams)
}

// If a guest does not read, Dial returns when its context ends. The number of goroutines of such
// calls is limited, and they end with the channel.
func TestDialToGuestThatDoesNotRead(t *testing.T) {
	c, _ := stuck(t)
	const callers = openings + 10
	cause := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	dialed := make(chan error, callers)
	for range callers {
		go func() {
			_, err := c.Dial(ctx, 1)
			dialed <- err
		}()
	}
	select {
	case err := <-dialed:
		t.Fatalf("Dial returned %v although the guest does not read", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel(cause)
	for range callers {
		select {
		case err := <-dialed:
			if !errors.Is(err, cause) {
				t.Errorf("got %v, want the cause of the context", err)
			}
		case <-hosttest.Late():
			t.Fatal("Dial did not return after its context had ended")
		}
	}
	if n := openingStreams(); n == 0 || n > openings {
		t.Errorf("got %d streams that are being opened, want 1 to %d", n, openings)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	checkNoneOpening(t)
}

// A stream that opens after its caller has left is closed.
func TestStreamThatOpensLateIsClosed(t *testing.T) {
	c, f := stuck(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Dial(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Dial of a guest that does not read: got %v, want DeadlineExceeded", err)
	}
	if openingStreams() != 1 {
		t.Fatalf("control: %d streams are being opened", openingStreams())
	}
	if err := f.fromHost.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	var read []byte
	end := []byte{0, 1, 0, 4, 0, 0, 0, 1} // part of the frame that ends the first stream
	for page := make([]byte, fullFrame); !bytes.Contains(read, end); {
		n, err := f.fromHost.Read(page)
		if err != nil {
			t.Fatalf("the stream was not closed: %v", err)
		}
		read = append(read, page[:n]...)
	}
	checkNoneOpening(t)
}

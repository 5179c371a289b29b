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

// stuck is a channel whose guest has greeted and reads nothing more, and whose pipe is full.
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

// beginning counts the streams that are being opened.
func beginning() int {
	stacks := make([]byte, 4<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "relay.(*Channel).begin.func")
}

func noneBegins(t *testing.T) {
	t.Helper()
	hosttest.NoMore(t, "streams that are being opened", 0, beginning)
}

// If a guest reads nothing, callers wait only as long as their contexts. The goroutines of such
// calls are limited, and end with the channel.
func TestDialToGuestThatDoesNotRead(t *testing.T) {
	c, _ := stuck(t)
	const callers = openings + 10
	why := errors.New("the caller went away")
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
		t.Fatalf("the pipe has no reader, and the dial ended with %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	cancel(why)
	for range callers {
		select {
		case err := <-dialed:
			if !errors.Is(err, why) {
				t.Errorf("it ended with %v", err)
			}
		case <-hosttest.Late():
			t.Fatal("it continues after its context ended")
		}
	}
	if n := beginning(); n == 0 || n > openings {
		t.Errorf("%d streams are being opened, want at most %d and one for control", n, openings)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	noneBegins(t)
}

// A stream that opens after its caller has left is closed.
func TestLateStream(t *testing.T) {
	c, f := stuck(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Dial(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if beginning() != 1 {
		t.Fatalf("control: %d streams are being opened", beginning())
	}
	if err := f.fromHost.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	var read []byte
	end := []byte{0, 1, 0, 4, 0, 0, 0, 1} // of a frame that ends the first stream
	for page := make([]byte, fullFrame); !bytes.Contains(read, end); {
		n, err := f.fromHost.Read(page)
		if err != nil {
			t.Fatalf("the stream is not closed: %v", err)
		}
		read = append(read, page[:n]...)
	}
	noneBegins(t)
}

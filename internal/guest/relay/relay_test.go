package relay_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// lossy forwards data as gVisor does. It writes pieces of 16 KiB to a buffer of 1 MiB and loses the
// bytes that do not fit.
type lossy struct {
	net.Conn
	mu     sync.Mutex
	wake   *sync.Cond
	buffer []byte
	closed bool
	lost   int
}

const capacity = 1 << 20

func newLossy(to net.Conn) *lossy {
	l := &lossy{Conn: to}
	l.wake = sync.NewCond(&l.mu)
	go func() {
		for {
			l.mu.Lock()
			for len(l.buffer) == 0 && !l.closed {
				l.wake.Wait()
			}
			chunk := l.buffer[:min(len(l.buffer), 64<<10)]
			l.buffer = l.buffer[len(chunk):]
			closed := l.closed
			l.mu.Unlock()
			if len(chunk) == 0 && closed {
				_ = to.Close()
				return
			}
			if _, err := to.Write(chunk); err != nil {
				return
			}
		}
	}()
	return l
}

func (l *lossy) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		chunk := rest[:min(len(rest), 16<<10)]
		rest = rest[len(chunk):]
		l.mu.Lock()
		fits := min(len(chunk), capacity-len(l.buffer))
		l.lost += len(chunk) - fits
		l.buffer = append(l.buffer, chunk[:fits]...)
		l.wake.Broadcast()
		l.mu.Unlock()
	}
	return len(p), nil
}

func (l *lossy) Close() error {
	l.mu.Lock()
	l.closed = true
	l.wake.Broadcast()
	l.mu.Unlock()
	return nil
}

// guest serves port 80 by a function, and returns a function that dials the guest.
func guest(t *testing.T, program func(net.Conn)) func(port int) (net.Conn, error) {
	t.Helper()
	listen := func() net.Listener {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return l
	}
	inside, outside := listen(), listen()
	go func() {
		for {
			conn, err := inside.Accept()
			if err != nil {
				return
			}
			go program(conn)
		}
	}()
	go func() {
		_ = relay.Serve(outside, func(port int) (net.Conn, error) {
			if port != 80 {
				return nil, errors.New("refused")
			}
			return net.Dial("unix", inside.Addr().String())
		})
	}()
	return func(port int) (net.Conn, error) {
		channel, err := net.Dial("unix", outside.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return relay.Dial(t.Context(), newLossy(channel), port)
	}
}

// random returns n random bytes.
func random(t *testing.T, n int) []byte {
	t.Helper()
	data := make([]byte, n)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSlowReaderGetsAllData(t *testing.T) {
	got := make(chan []byte, 1)
	dial := guest(t, func(conn net.Conn) {
		time.Sleep(50 * time.Millisecond) // let the sender fill the buffer
		data, _ := io.ReadAll(conn)
		got <- data
		conn.Close()
	})
	conn, err := dial(80)
	if err != nil {
		t.Fatal(err)
	}
	want := random(t, 5<<20)
	if _, err := conn.Write(want); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if data := <-got; !bytes.Equal(data, want) {
		t.Fatalf("got %d bytes, want the %d that were written", len(data), len(want))
	}
}

// Control: without a relay, the channel of these tests loses data.
func TestChannelWithoutRelayLosesData(t *testing.T) {
	host, guestConn := net.Pipe()
	l := newLossy(host)
	if _, err := l.Write(random(t, 5<<20)); err != nil {
		t.Fatal(err)
	}
	if l.lost == 0 {
		t.Fatal("the channel lost nothing, so the other tests prove nothing")
	}
	guestConn.Close()
}

func TestBothDirectionsAtOnce(t *testing.T) {
	dial := guest(t, func(conn net.Conn) {
		_, _ = io.Copy(conn, conn)
		conn.Close()
	})
	conn, err := dial(80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	want := random(t, 3<<20)
	go func() { _, _ = conn.Write(want) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got other data than was written, %v", err)
	}
}

func TestEndArrivesAfterData(t *testing.T) {
	want := random(t, 2<<20)
	dial := guest(t, func(conn net.Conn) {
		_, _ = conn.Write(want)
		conn.Close()
	})
	conn, err := dial(80)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("got %d of %d bytes, %v", len(got), len(want), err)
	}
}

func TestRefusedPort(t *testing.T) {
	dial := guest(t, func(conn net.Conn) { conn.Close() })
	if _, err := dial(81); !errors.Is(err, relay.ErrRefused) {
		t.Fatalf("got %v, want ErrRefused", err)
	}
}

func TestDialEndsWithItsContext(t *testing.T) {
	host, guestConn := net.Pipe()
	defer guestConn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := relay.Dial(ctx, host, 80); err == nil {
		t.Fatal("got no error for a guest that does not answer")
	}
}

func TestHostilePeerIsDisconnected(t *testing.T) {
	for name, frames := range map[string][]byte{
		"unknown kind":    {9, 0, 0, 0},
		"empty data":      {1, 0, 0, 0},
		"large data":      {1, 0xff, 0xff, 0xff},
		"too much credit": {2, 0, 0, 1},
		"data after end":  {3, 0, 0, 0, 1, 0, 0, 1, 'x'},
	} {
		host, guestConn := net.Pipe()
		go func() {
			_, _ = io.ReadFull(guestConn, make([]byte, 2))
			_, _ = guestConn.Write(append([]byte{1}, frames...))
			_, _ = io.Copy(io.Discard, guestConn)
		}()
		conn, err := relay.Dial(t.Context(), host, 80)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(hosttest.Deadline())
		if data, err := io.ReadAll(conn); err != nil && !errors.Is(err, io.EOF) || len(data) > 0 {
			t.Errorf("%s: got %q, %v, want the end", name, data, err)
		}
		conn.Close()
		guestConn.Close()
	}
}

func TestEndedStreamsLeaveNoGoroutines(t *testing.T) {
	dial := guest(t, func(conn net.Conn) {
		_, _ = io.Copy(conn, conn)
		conn.Close()
	})
	before := runtime.NumGoroutine()
	for range 50 {
		conn, err := dial(80)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte("hello"))
		_, _ = io.ReadFull(conn, make([]byte, 5))
		conn.Close()
	}
	hosttest.EventuallyAtMost(t, "goroutines", before, runtime.NumGoroutine)
}

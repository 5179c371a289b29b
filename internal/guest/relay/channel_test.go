package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// inside is a guest that echoes on its own port 1. A program echoes on port 2.
type inside struct{}

func (inside) Serves(port int) bool { return port == 1 }

func (inside) Take(_ int, stream net.Conn) bool {
	_, _ = io.Copy(stream, stream)
	_ = stream.Close()
	return true
}

func (inside) Open(port int) (net.Conn, error) {
	if port != 2 {
		return nil, errors.New("no listener")
	}
	ours, theirs := net.Pipe()
	go func() {
		_, _ = io.Copy(theirs, theirs)
		_ = theirs.Close()
	}()
	return ours, nil
}

// fifo is the pair of pipes of a channel. Several hosts may open it, one after the other.
type fifo struct{ toGuest, fromHost, fromGuest, toHost *os.File }

// newFifo returns new pipes.
func newFifo(t *testing.T) *fifo {
	t.Helper()
	f := &fifo{}
	var err error
	if f.fromHost, f.toGuest, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	if f.fromGuest, f.toHost, err = os.Pipe(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, file := range []*os.File{f.toGuest, f.fromHost, f.fromGuest, f.toHost} {
			file.Close()
		}
	})
	return f
}

// open opens a host's ends of the pipes.
func (f *fifo) open(t *testing.T) (read, write *os.File) {
	t.Helper()
	openFD := func(of *os.File, flag int) *os.File {
		file, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(int(of.Fd())), flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	return openFD(f.fromGuest, os.O_RDONLY), openFD(f.toGuest, os.O_WRONLY)
}

// host returns the channel of a new host.
func host(t *testing.T, f *fifo) *Channel {
	t.Helper()
	read, write := f.open(t)
	c, err := NewChannel(read, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// guest serves the guest's end.
func guest(t *testing.T, f *fifo) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- ServeChannel(f.fromHost, f.toHost, inside{}) }()
	t.Cleanup(func() {
		f.fromHost.Close()
		select {
		case <-done:
		case <-hosttest.Late():
			t.Error("the guest still serves after its pipe was closed")
		}
	})
}

// echo checks that a port returns the data that is written to it.
func echo(t *testing.T, c *Channel, port, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	conn, err := c.Dial(ctx, port)
	if err != nil {
		t.Errorf("dial port %d: %v", port, err)
		return
	}
	defer conn.Close()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(port)}).Read(data)
	go func() { _, _ = conn.Write(data) }()
	got := make([]byte, size)
	if _, err := io.ReadFull(conn, got); err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("port %d: got other data than the %d bytes that were written, %v", port, size, err)
	}
}

func TestChannelCarriesManyStreams(t *testing.T) {
	f := newFifo(t)
	c := host(t, f) // the greeting waits in the pipe
	guest(t, f)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() { echo(t, c, 1+i%2, 1+i*20_000) })
	}
	all.Wait()
	if _, err := c.Dial(t.Context(), 3); !errors.Is(err, ErrRefused) {
		t.Errorf("port without a listener: got %v, want ErrRefused", err)
	}
	echo(t, c, 2, 10)
}

// Data of an earlier host in the pipes, and the answers to it, do not reach the next host.
func TestChannelServesOneHostAfterAnother(t *testing.T) {
	f := newFifo(t)
	guest(t, f)
	for range 3 {
		c := host(t, f)
		echo(t, c, 2, 100_000)
		stuck, err := c.Dial(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		// The host ends without reading the answers and without closing its session.
		if _, err := stuck.Write(bytes.Repeat([]byte("x"), 150_000)); err != nil {
			t.Fatal(err)
		}
		_ = c.conn.Close() // the session may have closed it already
	}
	echo(t, host(t, f), 2, 100_000)
}

// A host that is killed between a header and its data, of an open or a closed stream, does not
// break the channel for the next host.
func TestChannelSurvivesHostKilledWithinData(t *testing.T) {
	for _, stream := range []byte{1, 99} {
		f := newFifo(t)
		guest(t, f)
		c := host(t, f)
		open, err := c.Dial(t.Context(), 1) // the first stream, whose number is 1
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()
		c.reminder.stop()
		header := []byte{0, 0, 0, 0, 0, 0, 0, stream, 0, 0, 0, 100} // data, 100 bytes
		if _, err := c.conn.Write(header); err != nil {
			t.Fatal(err)
		}
		_ = c.conn.Close() // as if the host were killed
		echo(t, host(t, f), 2, 100_000)
	}
}

// Reminders do not disturb the streams that the guest reads.
func TestRemindersDoNotDisturbStreams(t *testing.T) {
	f := newFifo(t)
	c := host(t, f)
	guest(t, f)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				if err := RemindGuest(f.toGuest); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { echo(t, c, 1+i%2, 300_000) })
	}
	all.Wait()
	close(stop)
	<-stopped
}

func TestChannelDialEndsWithItsContext(t *testing.T) {
	f := newFifo(t)
	c := host(t, f)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the caller has left")
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if _, err := c.Dial(ctx, 1); !errors.Is(err, cause) {
		t.Errorf("without a guest: got %v, want the cause of the context", err)
	}
	guest(t, f)
	echo(t, c, 1, 10) // the next caller reads the guest's answer
}

func TestChannelEndsStreamsBothWays(t *testing.T) {
	f := newFifo(t)
	c := host(t, f)
	guest(t, f)
	conn, err := c.Dial(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	other, err := c.Dial(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 1)); err == nil {
		t.Error("a stream is open after its channel was closed")
	}
	if !c.Broken() {
		t.Error("a closed channel is not broken")
	}
}

// Close ends a read of the stream even if the other side never closes it.
func TestCloseEndsRead(t *testing.T) {
	f := newFifo(t)
	c := host(t, f)
	done := make(chan error, 1)
	go func() { done <- ServeChannel(f.fromHost, f.toHost, frozen{}) }()
	t.Cleanup(func() { f.fromHost.Close(); <-done })
	conn, err := c.Dial(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want net.ErrClosed", err)
		}
	case <-hosttest.Late():
		t.Fatal("the read did not end")
	}
}

// frozen accepts streams and does nothing with them.
type frozen struct{}

func (frozen) Serves(int) bool            { return true }
func (frozen) Take(int, net.Conn) bool    { return true }
func (frozen) Open(int) (net.Conn, error) { return nil, errors.New("no listener") }

// FuzzGuestEnd checks that the guest neither crashes nor invents data, whatever arrives.
func FuzzGuestEnd(f *testing.F) {
	f.Add([]byte{0x80, 32})
	f.Add([]byte{0, 3, 'a', 'b', 'c', 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		go func() {
			_, _ = write.Write(data)
			write.Close()
		}()
		g := &guestEnd{pipes: pipes{read: read, write: read}}
		total := 0
		for b := make([]byte, 100); ; {
			n, err := g.Read(b)
			if total += n; total > len(data) {
				t.Fatal("read more bytes than were written")
			}
			if errors.Is(err, io.EOF) && g.next != nil {
				g.next = nil
				continue
			}
			if err != nil {
				return
			}
		}
	})
}

// If another caller is starting the session, Dial still returns when its context ends.
func TestDialEndsWithItsContextDuringStart(t *testing.T) {
	f := newFifo(t)
	c, err := NewChannel(f.open(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.starting <- struct{}{}
	cause := errors.New("the caller has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := c.Dial(ctx, 1); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	if c.Broken() {
		t.Error("the channel is broken")
	}
}

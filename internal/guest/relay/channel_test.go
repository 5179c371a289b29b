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
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// inside is a guest whose port 1 is its own and echoes, and whose port 2 is a program that does the
// same.
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

// fifo are the two pipes of a channel, which a host may open again.
type fifo struct{ toGuest, fromHost, fromGuest, toHost *os.File }

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
		for _, one := range []*os.File{f.toGuest, f.fromHost, f.fromGuest, f.toHost} {
			one.Close()
		}
	})
	return f
}

// again opens another host's ends of the same pipes.
func (f *fifo) again(t *testing.T) (read, write *os.File) {
	t.Helper()
	open := func(of *os.File, flag int) *os.File {
		file, err := os.OpenFile("/proc/self/fd/"+itoa(int(of.Fd())), flag, 0)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	return open(f.fromGuest, os.O_RDONLY), open(f.toGuest, os.O_WRONLY)
}

func itoa(n int) string {
	if n >= 10 {
		return itoa(n/10) + itoa(n%10)
	}
	return string(rune('0' + n))
}

func host(t *testing.T, f *fifo) *Channel {
	t.Helper()
	read, write := f.again(t)
	c, err := NewChannel(read, write)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func guest(t *testing.T, f *fifo) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- ServeChannel(f.fromHost, f.toHost, inside{}) }()
	t.Cleanup(func() {
		f.fromHost.Close()
		select {
		case <-done:
		case <-hosttest.Late():
			t.Error("the guest continues to serve after its pipe was closed")
		}
	})
}

func echo(t *testing.T, c *Channel, port, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	conn, err := c.Dial(ctx, port)
	if err != nil {
		t.Errorf("port %d: %v", port, err)
		return
	}
	defer conn.Close()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(port)}).Read(data)
	go func() { _, _ = conn.Write(data) }()
	got := make([]byte, size)
	if _, err := io.ReadFull(conn, got); err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("port %d: %d bytes came back wrong: %v", port, size, err)
	}
}

func TestChannelCarriesManyStreams(t *testing.T) {
	f := newFifo(t)
	c := host(t, f) // greets before anybody is there
	guest(t, f)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() { echo(t, c, 1+i%2, 1+i*20_000) })
	}
	all.Wait()
	if _, err := c.Dial(t.Context(), 3); !errors.Is(err, ErrRefused) {
		t.Errorf("a port without a listener: %v", err)
	}
	echo(t, c, 2, 10)
}

// Leftovers of an earlier host in the pipes, and answers to it, are not taken for the next one's.
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
		// The answers are not read, and the host leaves without closing.
		if _, err := stuck.Write(bytes.Repeat([]byte("x"), 150_000)); err != nil {
			t.Fatal(err)
		}
		_ = c.conn.Close() // its session may be first
	}
	echo(t, host(t, f), 2, 100_000)
}

// A host that is killed between a header and the announced data, of an existing stream or a former
// one, leaves a usable channel to the next.
func TestChannelAfterHostWasKilledWithinData(t *testing.T) {
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
		_ = c.conn.Close() // it does not read answers any more
		echo(t, host(t, f), 2, 100_000)
	}
}

// A nudge does not disturb the streams that the guest reads.
func TestNudgesSayNothing(t *testing.T) {
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
	why := errors.New("the caller went away")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	if _, err := c.Dial(ctx, 1); !errors.Is(err, why) {
		t.Errorf("without a guest: %v", err)
	}
	guest(t, f)
	echo(t, c, 1, 10) // the next caller has the guest's answer
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
		t.Error("a stream outlives its channel")
	}
	if !c.Broken() {
		t.Error("a closed channel reports that it works")
	}
}

// A reader of a stream stops when the stream is closed, even if the other side never closes.
func TestChannelCloseEndsARead(t *testing.T) {
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
			t.Errorf("the read ends with %v", err)
		}
	case <-hosttest.Late():
		t.Fatal("the read continues")
	}
}

// frozen accepts streams and does nothing with them.
type frozen struct{}

func (frozen) Serves(int) bool            { return true }
func (frozen) Take(int, net.Conn) bool    { return true }
func (frozen) Open(int) (net.Conn, error) { return nil, errors.New("no listener") }

// A program of the same server frames the host's data, but whatever arrives, the guest must not
// crash.
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
				t.Fatal("more came out than went in")
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

// A caller does not wait for another one that is about to start the session.
func TestDialGivesUpDuringAStart(t *testing.T) {
	f := newFifo(t)
	c, err := NewChannel(f.again(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.starting <- struct{}{}
	ended := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ended)
	if _, err := c.Dial(ctx, 1); !errors.Is(err, ended) {
		t.Errorf("got %v", err)
	}
	if c.Broken() {
		t.Error("the channel is broken for other callers")
	}
}

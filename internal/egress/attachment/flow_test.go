package attachment_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// accepting returns a handler that accepts all flows, and a channel with their connections.
func accepting(t *testing.T) (*handler, <-chan net.Conn) {
	t.Helper()
	conns := make(chan net.Conn, 64)
	return &handler{tcp: func(f *attachment.Flow) {
		c, err := f.Accept()
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		conns <- c
	}}, conns
}

func TestHalfCloseFromInside(t *testing.T) {
	h, conns := accepting(t)
	_, b := open(t, h, attachment.Options{})
	inside := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	defer ours.Close()
	_, _ = inside.Write([]byte("question"))
	_ = inside.CloseWrite()
	if got, err := io.ReadAll(ours); err != nil || string(got) != "question" {
		t.Fatalf("the handler read %q %v, want question", got, err)
	}
	// The other direction is still open.
	if _, err := ours.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	ours.Close()
	if got, err := io.ReadAll(inside); err != nil || string(got) != "answer" {
		t.Fatalf("the sandbox read %q %v, want answer", got, err)
	}
}

func TestHalfCloseFromOutside(t *testing.T) {
	h, conns := accepting(t)
	_, b := open(t, h, attachment.Options{})
	inside := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	defer ours.Close()
	_, _ = ours.Write([]byte("greeting"))
	if err := ours.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(inside); err != nil || string(got) != "greeting" {
		t.Fatalf("the sandbox read %q %v, want greeting", got, err)
	}
	_, _ = inside.Write([]byte("late"))
	inside.Close()
	if got, err := io.ReadAll(ours); err != nil || string(got) != "late" {
		t.Fatalf("the handler read %q %v, want late", got, err)
	}
}

func TestCloseDeliversWrittenData(t *testing.T) {
	h, conns := accepting(t)
	_, b := open(t, h, attachment.Options{})
	inside := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = ours.Write(data)
		ours.Close()
	}()
	if got, err := io.ReadAll(inside); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("the sandbox read %d of %d bytes: %v", len(got), len(data), err)
	}
}

func TestResetEndsConnection(t *testing.T) {
	h, conns := accepting(t)
	l, b := open(t, h, attachment.Options{})
	inside := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	if err := ours.(interface{ Reset() error }).Reset(); err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "reset") {
		t.Fatalf("read inside the sandbox: got %v, want a reset", err)
	}
	if n := l.Counts().Connections; n != 0 {
		t.Errorf("%d connections are open after Reset, want 0", n)
	}
	ours.Close() // has no effect after Reset
}

func TestConnectionDeadlines(t *testing.T) {
	h, conns := accepting(t)
	_, b := open(t, h, attachment.Options{})
	inside := b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	defer ours.Close()
	_ = ours.SetDeadline(time.Now().Add(-time.Second))
	for name, op := range map[string]func([]byte) (int, error){"read": ours.Read, "write": ours.Write} {
		_, err := op(make([]byte, 1))
		if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s after its deadline: got %v, want a timeout", name, err)
		}
	}
	// A deadline that is set during a read ends the read.
	_ = ours.SetDeadline(time.Time{})
	ended := make(chan error, 1)
	go func() {
		_, err := ours.Read(make([]byte, 1))
		ended <- err
	}()
	_ = ours.SetReadDeadline(time.Now().Add(time.Millisecond))
	select {
	case err := <-ended:
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a read whose deadline was set later: got %v, want ErrDeadlineExceeded", err)
		}
	case <-t.Context().Done():
	}
	// The connection stays usable.
	_ = ours.SetDeadline(time.Time{})
	_, _ = inside.Write([]byte("x"))
	if n, err := ours.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read after the deadline was removed: %d bytes, %v, want 1 byte", n, err)
	}
}

// A sandbox that stops reading blocks one writer, and only until its deadline.
func TestSlowReaderBlocksOnlyUntilDeadline(t *testing.T) {
	h, conns := accepting(t)
	_, b := open(t, h, attachment.Options{})
	b.mustDial(t, "1.1.1.1:80")
	ours := <-conns
	defer ours.Close()
	// Data that fits needs no deadline, which may pass before the first byte.
	first, err := ours.Write(make([]byte, 512))
	if err != nil || first == 0 {
		t.Fatalf("the first write: %d bytes, %v", first, err)
	}
	_ = ours.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := io.Copy(ours, io.LimitReader(zeros{}, 1<<30))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("write to a blocked reader: %d bytes, %v, want ErrDeadlineExceeded", n, err)
	}
	if n > 16<<20 {
		t.Errorf("%d bytes were accepted for a reader that does not read", n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestConnectionsAreLimited(t *testing.T) {
	h, conns := accepting(t)
	l, b := open(t, h, attachment.Options{MaxConnections: 4})
	var inside []*gonet.TCPConn
	for range 4 {
		inside = append(inside, b.mustDial(t, "1.1.1.1:80"))
	}
	if c, err := b.dial(t.Context(), "1.1.1.1:80"); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("a fifth connection with a limit of 4: got %v %v, want refused", c, err)
	}
	if d := h.drops(); len(d) != 1 || d[0] != "tcp 1.1.1.1:80" {
		t.Errorf("reported %q, want tcp 1.1.1.1:80", d)
	}
	// A closed connection whose peer is still open still counts ...
	(<-conns).Close()
	if n := l.Counts().Connections; n != 4 {
		t.Errorf("%d connections while one of four is closing, want 4", n)
	}
	// ... until the peer has closed it too.
	inside[0].Close()
	inside[1].Close()
	inside[2].Close()
	inside[3].Close()
	for range 3 {
		(<-conns).Close()
	}
	hosttest.Eventually(t, "all connections have ended", func() bool { return l.Counts().Connections == 0 })
	b.mustDial(t, "1.1.1.1:80")
	<-conns
}

// A waiting handler counts as a half-open connection, but does not block the attachment.
func TestHalfOpenConnectionsAreLimited(t *testing.T) {
	var mu sync.Mutex
	waiting, most := 0, 0
	release := make(chan struct{})
	l, b := open(t, &handler{tcp: func(*attachment.Flow) {
		mu.Lock()
		waiting++
		most = max(most, waiting)
		mu.Unlock()
		<-release
		mu.Lock()
		waiting--
		mu.Unlock()
	}}, attachment.Options{MaxHalfOpen: 3})
	var dials sync.WaitGroup
	for range 8 {
		dials.Go(func() {
			if c, err := b.dial(t.Context(), "1.1.1.1:80"); err == nil {
				c.Close()
				t.Error("a refused flow was accepted")
			}
		})
	}
	hosttest.Eventually(t, "all connection attempts have arrived", func() bool { return l.Counts().Received >= 8 })
	if n := l.Counts().Connections; n > 3 {
		t.Errorf("%d connections are half open, the limit is 3", n)
	}
	close(release)
	dials.Wait()
	if most > 3 {
		t.Errorf("%d handlers ran at once, the limit is 3", most)
	}
}

func TestFlowIsDecidedOnce(t *testing.T) {
	errs := make(chan error, 1)
	_, b := open(t, &handler{tcp: func(f *attachment.Flow) {
		c, err := f.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		f.Refuse() // too late, so it has no effect
		_, err = f.Accept()
		errs <- err
		_, _ = c.Write([]byte("fine"))
		c.Close()
	}}, attachment.Options{})
	c := b.mustDial(t, "1.1.1.1:80")
	if err := <-errs; !errors.Is(err, attachment.ErrDecided) {
		t.Errorf("a second Accept: got %v, want ErrDecided", err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "fine" {
		t.Errorf("the accepted connection: read %q %v, want fine", got, err)
	}
}

package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// checkEcho checks that the other side returns the text that is written to a stream.
func checkEcho(t *testing.T, stream net.Conn, text string) {
	t.Helper()
	if err := stream.SetDeadline(time.Now().Add(hosttest.Patience(hosttest.Hang))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stream, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != text {
		t.Errorf("echo: got %q, %v, want %q", got, err, text)
	}
}

// One reliable stream carries streams to several ports at once.
func TestStreams(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ServeStreams(theirs, inside{}) }()
	s, err := NewStreams(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var open []net.Conn
	for _, port := range []int{1, 2, 1} {
		stream, err := s.Dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		open = append(open, stream)
	}
	for _, stream := range open {
		checkEcho(t, stream, "text")
	}
	if _, err := s.Dial(t.Context(), 3); !errors.Is(err, ErrRefused) {
		t.Errorf("port without a listener: got %v, want ErrRefused", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Dial(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancelling: got %v", err)
	}
	select {
	case <-s.Done():
		t.Error("the session is done while it is open")
	default:
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("ServeStreams of the guest: got %v, want nil", err)
		}
	case <-hosttest.Late():
		t.Fatal("the guest still serves")
	}
	<-s.Done()
	if _, err := s.Dial(t.Context(), 1); err == nil {
		t.Error("a closed session opened a stream")
	}
}

// If the guest does not answer, Dial returns when its context ends.
func TestStreamsDialEndsWithItsContext(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	s, err := NewStreams(ours)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		// The first bytes mean that Dial has sent its request.
		_, _ = theirs.Read(make([]byte, 1))
		cancel()
	}()
	if _, err := s.Dial(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial of a guest that does not answer: got %v, want Canceled", err)
	}
}

func TestDirect(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- ServeDirect(l, inside{}) }()
	dial := func(ctx context.Context, port int) (net.Conn, error) {
		stream, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		return stream, DialDirect(ctx, stream, port)
	}
	for _, port := range []int{1, 2} {
		stream, err := dial(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		checkEcho(t, stream, "text")
	}
	stream, err := dial(t.Context(), 3)
	if !errors.Is(err, ErrRefused) {
		t.Errorf("port without a listener: got %v, want ErrRefused", err)
	}
	if _, err := stream.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("refused stream: got %v, want net.ErrClosed", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-served:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("ServeDirect of the guest: got %v, want net.ErrClosed", err)
		}
	case <-hosttest.Late():
		t.Fatal("the guest still serves")
	}
}

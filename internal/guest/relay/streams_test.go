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

// bounces writes to a stream and fails unless the same comes back.
func bounces(t *testing.T, stream net.Conn, text string) {
	t.Helper()
	if err := stream.SetDeadline(time.Now().Add(hosttest.Patience(hosttest.Hang))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(stream, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(stream, got); err != nil || string(got) != text {
		t.Errorf("%q comes back as %q: %v", text, got, err)
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
		bounces(t, stream, "text")
	}
	if _, err := s.Dial(t.Context(), 3); !errors.Is(err, ErrRefused) {
		t.Errorf("a port without a listener: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Dial(ended, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller gave up: %v", err)
	}
	select {
	case <-s.Done():
		t.Error("the session is done while it is used")
	default:
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("the guest's end: %v", err)
		}
	case <-hosttest.Late():
		t.Fatal("the guest still serves")
	}
	<-s.Done()
	if _, err := s.Dial(t.Context(), 1); err == nil {
		t.Error("a closed session opens a stream")
	}
}

// A guest that does not answer keeps a caller no longer than the caller waits.
func TestStreamsWithoutAnAnswer(t *testing.T) {
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
		// The caller has asked when its first bytes are there.
		_, _ = theirs.Read(make([]byte, 1))
		cancel()
	}()
	if _, err := s.Dial(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
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
		bounces(t, stream, "text")
	}
	stream, err := dial(t.Context(), 3)
	if !errors.Is(err, ErrRefused) {
		t.Errorf("a port without a listener: %v", err)
	}
	if _, err := stream.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a refused stream is still open: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-served:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("the guest's end: %v", err)
		}
	case <-hosttest.Late():
		t.Fatal("the guest still serves")
	}
}

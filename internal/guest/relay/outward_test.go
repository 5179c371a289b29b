package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// lowered is a gateway that reads a request to its end and then answers with it in lower case.
func lowered(t *testing.T) func() (Gateway, error) {
	return func() (Gateway, error) {
		ours, theirs, err := pair()
		if err != nil {
			return nil, err
		}
		go func() {
			defer theirs.Close()
			request, _ := io.ReadAll(theirs)
			_, _ = io.WriteString(theirs, strings.ToLower(string(request)))
		}()
		return ours.(*net.UnixConn), nil
	}
}

// outward returns both ends of a session whose guest has greeted.
func outward(t *testing.T) (*Outward, *Inward) {
	t.Helper()
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	guest, err := NewOutward(theirs)
	if err != nil {
		t.Fatal(err)
	}
	greeted := make(chan error, 1)
	go func() { greeted <- guest.Greet() }()
	host, err := NewInward(t.Context(), ours)
	if err := errors.Join(err, <-greeted); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	return guest, host
}

func TestOutwardStreams(t *testing.T) {
	guest, host := outward(t)
	served := make(chan struct{})
	go func() { host.Serve(lowered(t)); close(served) }()
	var open []*OutwardStream
	for range 3 {
		s, err := guest.Open()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, s)
	}
	for _, s := range open {
		if err := s.SetDeadline(hosttest.Deadline()); err != nil {
			t.Fatal(err)
		}
		_, err := io.WriteString(s, "TEXT")
		if err := errors.Join(err, s.CloseWrite()); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(s); err != nil || string(got) != "text" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
	<-guest.Done()
}

// A guest that never reports that it serves programs does not make its host wait for ever.
func TestOutwardNeedsGreeting(t *testing.T) {
	for what, first := range map[string]string{"nothing": "", "another frame": string(hostileFrame(typePing, flagOpen, 0, nil, 7))} {
		ours, theirs, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(theirs, first)
		ctx, cancel := context.WithCancel(t.Context())
		if first == "" {
			cancel()
		}
		if _, err := NewInward(ctx, ours); err == nil {
			t.Errorf("%s is a greeting", what)
		}
		cancel()
		theirs.Close()
	}
}

// P45: an attacker who is root inside cannot open streams until the host's memory is full.
func TestOutwardStreamsAreBounded(t *testing.T) {
	guest, host := outward(t)
	served := make(chan struct{})
	go func() { host.Serve(lowered(t)); close(served) }()
	var err error
	for n := 0; err == nil; n++ {
		var s *OutwardStream
		if s, err = guest.Open(); err == nil {
			_, err = io.WriteString(s, "x")
		}
		if n > 4*maxOutward {
			t.Fatalf("%d streams are open", n)
		}
	}
	<-served
}

// A hostile guest sends pings after its greeting, for each of which the host would start a goroutine.
func TestHostileOutwardGuestEndsItsSession(t *testing.T) {
	ours, theirs, err := pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	greeting := append(hostileFrame(1, flagOpen, 1, nil, 0), hostileFrame(typeData, 0, 1, []byte{accepted}, 1)...)
	if _, err := theirs.Write(greeting); err != nil {
		t.Fatal(err)
	}
	host, err := NewInward(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := theirs.Write(hostileFrame(typePing, flagOpen, 0, nil, 7)); err != nil {
		t.Fatal(err)
	}
	host.Serve(lowered(t))
}

package guestmain

import (
	"errors"
	"io"
	"net"
	"testing"
)

// A connection inside reaches the server. After the server has ended, connecting fails at once.
func TestPipes(t *testing.T) {
	p := newPipes()
	if p.Addr().String() == "" && p.Addr().Network() != "pipe" {
		t.Errorf("the address is %v", p.Addr())
	}
	served := make(chan error, 1)
	go func() {
		conn, err := p.Accept()
		if err == nil {
			_, err = io.Copy(conn, io.LimitReader(conn, 4))
			err = errors.Join(err, conn.Close())
		}
		served <- err
	}()
	conn, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "ping" {
		t.Errorf("%q %v", got, err)
	}
	if err := errors.Join(<-served, conn.Close(), p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting: %v", err)
	}
	if _, err := p.open(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("opening: %v", err)
	}
}

// Cut streams fail at both ends, and a closed stream is no longer tracked.
func TestCutStreamsBreakOff(t *testing.T) {
	p, s := newPipes(), &streams{}
	listener := openStream{p, s}
	accept := func() (inside, outside net.Conn) {
		t.Helper()
		got := make(chan net.Conn, 1)
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
			}
			got <- conn
		}()
		outside, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		return <-got, outside
	}
	inside, _ := accept()
	_, other := accept()
	if len(s.open) != 2 {
		t.Errorf("%d streams are known", len(s.open))
	}
	if err := inside.Close(); err != nil || len(s.open) != 1 {
		t.Errorf("%d after one was closed, %v", len(s.open), err)
	}
	s.cut()
	if _, err := other.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a cut stream reads as %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

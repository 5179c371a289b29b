package guestmain

import (
	"errors"
	"io"
	"net"
	"testing"
)

// A connection reaches the server. After the listener is closed, connecting fails at once.
func TestPipesConnectUntilClosed(t *testing.T) {
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
		t.Errorf("echo: got %q, %v, want ping", got, err)
	}
	if err := errors.Join(<-served, conn.Close(), p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if _, err := p.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want ErrClosed", err)
	}
	if _, err := p.open(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("open after Close: got %v, want ErrClosed", err)
	}
}

// cut closes all open streams. A stream that was closed before is not tracked any more.
func TestCutClosesOpenStreams(t *testing.T) {
	p, s := newPipes(), &streams{}
	listener := trackingListener{p, s}
	accept := func() (guestPorts, outside net.Conn) {
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
	guestPorts, _ := accept()
	_, outside := accept()
	if len(s.open) != 2 {
		t.Errorf("got %d open streams, want 2", len(s.open))
	}
	if err := guestPorts.Close(); err != nil || len(s.open) != 1 {
		t.Errorf("after Close: got %d open streams, %v, want 1", len(s.open), err)
	}
	s.cut()
	if _, err := outside.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("Read of a cut stream: got %v, want EOF", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: got %v, want ErrClosed", err)
	}
}

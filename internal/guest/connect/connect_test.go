package connect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// listen serves one connection.
func listen(t *testing.T, serve func(*net.TCPConn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // it may be closed
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		serve(conn.(*net.TCPConn))
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func TestBothDirections(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1<<16)
	port := listen(t, func(c *net.TCPConn) {
		got, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(got))
		_, _ = c.Write([]byte(" end"))
	})
	in, frames := io.Pipe()
	go func() { _ = Send(frames, bytes.NewReader(data)) }() // the pipe stays open: the caller is there
	var out, log bytes.Buffer
	if code := Main(Args(port)[1:], in, &out, &log); code != 0 || out.String() != string(data)+" end" {
		t.Errorf("Main: got exit code %d, %d bytes and log %s, want all data", code, out.Len(), log.String())
	}
}

// The end of the caller ends the connection, before and after the end of its data.
func TestTheCallerLeaves(t *testing.T) {
	for _, sent := range []string{"", "\x00\x00\x00\x01x", "\x00\x00\x00\x01", "\x00\x00", "\x00\x00\x00\x00", "\xff\xff\xff\xff"} {
		held := make(chan error, 1)
		port := listen(t, func(c *net.TCPConn) {
			buf := make([]byte, 1)
			var err error
			for err == nil {
				_, err = c.Read(buf)
			}
			// After a half-close only a write shows that the other side is gone.
			for err = nil; err == nil; _, err = c.Write(buf) {
			}
			held <- err
		})
		ended := make(chan int, 1)
		go func() { ended <- Main(Args(port)[1:], strings.NewReader(sent), io.Discard, io.Discard) }()
		select {
		case <-ended:
		case <-hosttest.Late():
			t.Fatalf("after %q the program does not end", sent)
		}
		<-held
	}
}

func TestSendMarksOnlyARegularEnd(t *testing.T) {
	var out bytes.Buffer
	broken := errors.New("broken")
	if err := Send(&out, io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken))); !errors.Is(err, broken) || out.String() != "\x00\x00\x00\x02ab" {
		t.Errorf("Send from a broken reader: got %q, %v, want one frame without the end", out.String(), err)
	}
	out.Reset()
	if err := Send(&out, strings.NewReader(strings.Repeat("x", maxFrame+1))); err != nil || binary.BigEndian.Uint32(out.Bytes()) != maxFrame || !bytes.HasSuffix(out.Bytes(), []byte("\x00\x00\x00\x01x\x00\x00\x00\x00")) {
		t.Errorf("Send of a long input: got %d bytes, %v, want two frames and the end", out.Len(), err)
	}
}

func TestMistakes(t *testing.T) {
	port := listen(t, func(*net.TCPConn) {})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().(*net.TCPAddr).Port
	l.Close()
	for _, c := range []struct {
		args []string
		want int
	}{
		{nil, 2}, {[]string{"0"}, 2}, {[]string{"65536"}, 2}, {[]string{"example.com:80"}, 2}, {[]string{"80", "81"}, 2},
		{Args(closed)[1:], ExitRefused}, {Args(port)[1:], 0},
	} {
		var log bytes.Buffer
		if code := Main(c.args, strings.NewReader(""), io.Discard, &log); code != c.want || (code != 0) != (log.Len() > 0) {
			t.Errorf("Main with %q: got exit code %d and log %q, want %d", c.args, code, log.String(), c.want)
		}
	}
}

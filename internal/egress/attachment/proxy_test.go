package attachment_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func openProxy(t testing.TB, h attachment.Handler, o attachment.Options) (attachment.Attachment, attachmenttest.Socket) {
	t.Helper()
	link, socket := attachmenttest.ListenProxy(t)
	l, err := attachment.Open(attachment.Proxy, link, h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, socket
}

func dialProxy(t testing.TB, s attachmenttest.Socket) net.Conn {
	t.Helper()
	c, err := s.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(hosttest.Deadline())
	return c
}

// wantEnd fails unless the peer has closed the connection without sending data.
func wantEnd(t testing.TB, what string, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: read %d bytes, %v, want the end of the connection", what, n, err)
	}
}

func TestProxyPassesRequestsToHandler(t *testing.T) {
	const sent = "CONNECT api.test:443 HTTP/1.1\r\n\r\n"
	h := &handler{tcp: func(f *attachment.Flow) {
		if f.Destination().String() != "10.199.0.1:3128" {
			t.Errorf("the handler got a flow to %s", f.Destination())
		}
		echo(f)
	}}
	l, s := openProxy(t, h, attachment.Options{})
	c := dialProxy(t, s)
	if _, err := io.WriteString(c, sent); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != sent {
		t.Fatalf("the echo is %q %v, want %q", got, err, sent)
	}
	if n := l.Counts().Connections; n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
	if err := c.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, "after the end of the request", c)
	hosttest.Eventually(t, "the connection has ended", func() bool { return l.Counts().Connections == 0 })
}

func TestProxyAnswersNames(t *testing.T) {
	l, s := openProxy(t, &handler{names: reversed}, attachment.Options{})
	c := dialProxy(t, s)
	for _, q := range []string{"abc", strings.Repeat("x", 3000)} {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(q))), q...))
		reply := make([]byte, 2+len(q))
		if _, err := io.ReadFull(c, reply); err != nil || string(reply[2:]) != string(reversed([]byte(q), 1<<16)) {
			t.Fatalf("reply %q %v, want the reversed query", reply, err)
		}
	}
	if n := l.Counts().Names; n != 2 {
		t.Errorf("%d answered queries counted, want 2", n)
	}
	// A length of 4097 bytes begins like that of a query, but is above the limit.
	long := dialProxy(t, s)
	_, _ = long.Write([]byte{0x10, 0x01, 'q'})
	wantEnd(t, "a query that is too long", long)
}

func TestProxyDropsOtherStreams(t *testing.T) {
	h := &handler{tcp: func(*attachment.Flow) { t.Error("the handler got a flow") }, names: func([]byte, int) []byte { t.Error("the handler got a query"); return nil }}
	l, s := openProxy(t, h, attachment.Options{})
	for i, first := range []string{"\x16\x03\x01", "get / HTTP/1.1\r\n", "\x11", "\xff", "@", "["} {
		c := dialProxy(t, s)
		_, _ = io.WriteString(c, first)
		wantEnd(t, first, c)
		hosttest.Eventually(t, "the stream is counted", func() bool { return l.Counts().Dropped == uint64(i+1) })
	}
	if got := slices.Compact(h.drops()); !slices.Equal(got, []string{"proxy 10.199.0.1:3128"}) {
		t.Errorf("dropped streams are reported as %q", got)
	}
}

// A program may have as many streams as the limits allow. When it closes one, it can open another.
func TestProxyStreamsAreLimited(t *testing.T) {
	for what, o := range map[string]attachment.Options{
		"open": {MaxConnections: 2}, "undecided": {MaxHalfOpen: 2}, "per second": {ConnectsPerSecond: 1},
	} {
		t.Run(what, func(t *testing.T) {
			l, s := openProxy(t, &handler{tcp: echo}, o)
			first, second := dialProxy(t, s), dialProxy(t, s)
			hosttest.Eventually(t, "both are open", func() bool { return l.Counts().Connections == 2 })
			wantEnd(t, "the third", dialProxy(t, s))
			_, _ = io.WriteString(second, "GET")
			got := make([]byte, 3)
			if _, err := io.ReadFull(second, got); err != nil {
				t.Fatal(err)
			}
			first.Close()
			hosttest.Eventually(t, "one stream has ended", func() bool { return l.Counts().Connections == 1 })
			if what == "per second" {
				return
			}
			c := dialProxy(t, s)
			_, _ = io.WriteString(c, "GET")
			if _, err := io.ReadFull(c, got); err != nil {
				t.Fatalf("a new stream after one was closed: %v", err)
			}
		})
	}
}

// Streams in every state end with the attachment, and the socket accepts no more.
func TestProxyCloseEndsStreams(t *testing.T) {
	entered := make(chan struct{})
	l, s := openProxy(t, &handler{tcp: func(f *attachment.Flow) { close(entered); echo(f) }}, attachment.Options{})
	silent, names, web := dialProxy(t, s), dialProxy(t, s), dialProxy(t, s)
	_, _ = names.Write([]byte{0})
	_, _ = io.WriteString(web, "GET")
	<-entered
	hosttest.Eventually(t, "all are open", func() bool { return l.Counts().Connections == 3 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-l.Done()
	wantEnd(t, "silent", silent)
	wantEnd(t, "names", names)
	if _, err := io.Copy(io.Discard, web); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("a request continues after Close")
	}
	if n := l.Counts().Connections; n != 0 {
		t.Errorf("%d connections are open after Close, want 0", n)
	}
}

func TestProxyRejectsOtherDescriptors(t *testing.T) {
	file := func(f interface{ File() (*os.File, error) }) *os.File {
		t.Helper()
		file, err := f.File()
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	peer, packets, err := attachment.Pair(attachment.Packets)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	packetListener, err := net.Listen("unixpacket", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer packetListener.Close()
	for what, f := range map[string]*os.File{
		"a connected socket": packets, "a file": null, "a TCP listener": file(port.(*net.TCPListener)), "a packet listener": file(packetListener.(*net.UnixListener)),
	} {
		if _, err := attachment.Open(attachment.Proxy, f, &handler{}, attachment.Options{}); err == nil {
			t.Errorf("Open accepted %s as a proxy's socket", what)
		}
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s was left open: %v", what, err)
		}
	}
}

// FuzzProxy sends hostile bytes on a stream. Only a request or a query reaches the handler, a query
// is never longer than the limit, and no connection remains.
func FuzzProxy(f *testing.F) {
	for _, s := range []string{"", "CONNECT a:1 HTTP/1.1\r\n\r\n", "\x00\x03abc\x00\x00\x00\x01d", "\x10\x00", "\x10\x01a", "\x16\x03\x01\x00", "get", "\x00", "Z"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := &handler{
			names: func(q []byte, _ int) []byte {
				if data[0] > 0x10 || len(q) > 4096 {
					t.Errorf("the handler got a query of %d bytes from %q", len(q), data)
				}
				return q
			},
			tcp: func(f *attachment.Flow) {
				if data[0] < 'A' || data[0] > 'Z' {
					t.Errorf("the handler got a flow from %q", data)
				}
				echo(f)
			},
		}
		l, s := openProxy(t, h, attachment.Options{})
		c := dialProxy(t, s)
		go func() {
			_, _ = c.Write(data)
			_ = c.(*net.UnixConn).CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the stream %q is neither answered nor closed", data)
		}
		if len(data) > 0 && 'A' <= data[0] && data[0] <= 'Z' && string(got) != string(data) {
			t.Errorf("the stream %q was echoed as %q", data, got)
		}
		hosttest.Eventually(t, "no connection is open", func() bool { return l.Counts().Connections == 0 })
		l.Close()
	})
}

package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"golang.org/x/net/http2"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// windows returns how many unread bytes one end of an HTTP/2 connection allows, for a stream and
// for the connection. It reads until the end confirms the peer's settings.
func windows(t *testing.T, conn net.Conn) (stream, connection uint32) {
	t.Helper()
	stream, connection = 65_535, 65_535 // the defaults of HTTP/2
	f := http2.NewFramer(io.Discard, conn)
	if err := conn.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if frame.IsAck() {
				return stream, connection
			}
			if v, ok := frame.Value(http2.SettingInitialWindowSize); ok {
				stream = v
			}
		case *http2.WindowUpdateFrame:
			connection += frame.Increment
		}
	}
}

// sendSettings sends settings. The other end confirms them after the frames that it has sent
// before.
func sendSettings(t *testing.T, conn net.Conn, preface string) {
	t.Helper()
	if _, err := io.WriteString(conn, preface); err != nil {
		t.Fatal(err)
	}
	if err := http2.NewFramer(conn, nil).WriteSettings(); err != nil {
		t.Fatal(err)
	}
}

// The gateway process buffers data that a sandbox sends and no host reads, and data that a sandbox
// requests and does not read. Both must be small for each sandbox, because all sandboxes share the
// process.
func TestHTTP2WindowsAreSmall(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	b := &Handler{limits: Limits{}.orDefault()}

	t.Run("answers", func(t *testing.T) {
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: server.TLS.Certificates, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		transport := b.newTransport()
		transport.DialContext = (&net.Dialer{}).DialContext
		transport.TLSClientConfig.InsecureSkipVerify = true
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(t.Context())
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.Addr().String(), nil)
			if res, err := transport.RoundTrip(req); err == nil {
				res.Body.Close()
			}
		}()
		defer func() { cancel(); <-asked }()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			t.Fatal(err)
		}
		sendSettings(t, conn, "")
		if stream, _ := windows(t, conn); stream > 512<<10 {
			t.Errorf("%d bytes of a response may be buffered, want at most 512 KiB", stream)
		}
	})

	t.Run("requests", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := b.httpServer()
		s.Handler, s.ConnState, s.ConnContext = http.NotFoundHandler(), nil, nil
		s.TLSConfig = &tls.Config{Certificates: server.TLS.Certificates}
		served := make(chan struct{})
		go func() { defer close(served); _ = s.ServeTLS(l, "", "") }()
		defer func() { s.Close(); <-served }()
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		sendSettings(t, conn, http2.ClientPreface)
		if stream, connection := windows(t, conn); stream > 128<<10 || connection > 256<<10 {
			t.Errorf("%d bytes of a request and %d of a connection may be buffered, want at most 128 and 256 KiB", stream, connection)
		}
	})
}

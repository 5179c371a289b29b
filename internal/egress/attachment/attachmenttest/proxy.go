package attachmenttest

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Socket is the path of the Unix socket to which a sandbox without a network interface connects.
type Socket string

// ListenProxy creates a proxy's socket and returns the gateway's end and the socket's path.
func ListenProxy(t testing.TB) (link *os.File, s Socket) {
	t.Helper()
	path := filepath.Join(hosttest.ShortDir(t), "proxy.sock")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	defer u.Close()
	if link, err = u.File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link, Socket(path)
}

// Dial connects to the socket.
func (s Socket) Dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", string(s))
}

// Client returns an HTTP client with the socket as its proxy.
func (s Socket) Client(t testing.TB) *http.Client {
	transport := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.test"}),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

package hosttest

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// ServeUnix serves a handler at a Unix socket until the end of the test, and returns a client that
// sends all requests to it.
func ServeUnix(t testing.TB, h http.Handler) *http.Client {
	t.Helper()
	socket := filepath.Join(ShortDir(t), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(listener)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	return &http.Client{Transport: transport}
}

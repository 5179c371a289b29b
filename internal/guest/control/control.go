// Package control owns the client of a guest's control service: its requests and their connections.
package control

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/crannog/crannog/internal/guest"
)

// maxHeader limits the header of an answer. A program that has replaced the guest could otherwise
// make net/http read 10 MiB.
const maxHeader = 64 << 10

// Dial opens a connection to the control service.
type Dial func(ctx context.Context) (net.Conn, error)

// Once returns a transport that opens a connection for each request. The end of the body is then
// the end of the connection.
func Once(dial Dial) *http.Transport {
	t := transport(dial)
	t.DisableKeepAlives = true
	return t
}

// Reuse returns a transport that reuses one connection.
func Reuse(dial Dial) *http.Transport {
	t := transport(dial)
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxConnsPerHost = 1, 1, 1
	return t
}

func transport(dial Dial) *http.Transport {
	return &http.Transport{
		DisableCompression: true, MaxResponseHeaderBytes: maxHeader,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}
}

// Request returns a request to the control service. A body must be JSON. The caller must not follow
// redirects and must limit what it reads, because the answer comes from inside the sandbox.
func Request(ctx context.Context, token, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://guest"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(guest.ControlHeader, token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

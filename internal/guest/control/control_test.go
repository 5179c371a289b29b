package control_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/control"
)

func TestRequestsHaveToken(t *testing.T) {
	for _, test := range []struct {
		name      string
		transport func(control.Dial) *http.Transport
		dials     int32
	}{{"once", control.Once, 2}, {"reuse", control.Reuse, 1}} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil || string(body) != "{}" || r.URL.Path != "/update" || r.Header.Get(guest.ControlHeader) != "token" ||
					r.Header.Get("Content-Type") != "application/json" {
					http.Error(w, "unexpected request", http.StatusBadRequest)
				}
			}))
			defer server.Close()
			var dials atomic.Int32
			transport := test.transport(func(ctx context.Context) (net.Conn, error) {
				dials.Add(1)
				var d net.Dialer
				return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
			})
			defer transport.CloseIdleConnections()
			for range 2 {
				req, err := control.Request(t.Context(), "token", http.MethodPost, "/update", strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				res, err := transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
					t.Errorf("answer: got %s, %v", res.Status, err)
				}
				if err := res.Body.Close(); err != nil {
					t.Error(err)
				}
			}
			if n := dials.Load(); n != test.dials {
				t.Errorf("%d connections for two requests, want %d", n, test.dials)
			}
		})
	}
}

// An attacker who has replaced the guest cannot fill the server's memory with a header.
func TestLongAnswerHeaderIsRejected(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Long", strings.Repeat("x", 100<<10))
	}))
	defer server.Close()
	transport := control.Once(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	req, err := control.Request(t.Context(), "token", http.MethodGet, "/asked", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := transport.RoundTrip(req); err == nil {
		_ = res.Body.Close()
		t.Error("a header of 100 KiB was read")
	}
}

package server_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
)

// echoFrontend answers with the path of the request. It reports its Close.
type echoFrontend struct{ closed chan struct{} }

func (echoFrontend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "frontend "+r.URL.Path)
}

func (d echoFrontend) Close() { close(d.closed) }

// P42: only a Frontend within the process can name the acting caller. No header from the network
// can.
func TestOnlyFrontendCanNameCaller(t *testing.T) {
	opened := make(chan server.Backend, 1)
	frontend := echoFrontend{make(chan struct{})}
	s := serve(t, server.FrontendMount{Path: "/frontend", Open: func(in server.Backend) server.Frontend { opened <- in; return frontend }})
	in := <-opened
	for path, want := range map[string]bool{"/frontend": true, "/frontend/x": true, "/frontends": false} {
		if _, body := s.get(false, path); strings.HasPrefix(body, "frontend ") != want {
			t.Errorf("%s: got %s, want it served by the frontend: %v", path, body, want)
		}
	}
	console := sandbox.Principal{Local: true, Session: "cs1"}
	listKeys := func(dial func(context.Context) (net.Conn, error)) int {
		t.Helper()
		transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/v1/keys", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	if got := listKeys(func(ctx context.Context) (net.Conn, error) { return in.DialAs(ctx, console) }); got != http.StatusOK {
		t.Errorf("DialAs the console: got status %d, want 200", got)
	}
	if got := listKeys(func(ctx context.Context) (net.Conn, error) { return in.DialAs(ctx, sandbox.Principal{}) }); got != http.StatusForbidden {
		t.Errorf("DialAs without an identity: got status %d, want 403", got)
	}
	for _, header := range []string{"Actor", "Session", "X-Crannog-Session", "Cookie"} {
		if got, _ := s.get(false, "/v1/keys", header, "console:cs1"); got != http.StatusUnauthorized {
			t.Errorf("with the header %s: got status %d, want 401", header, got)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/keys", strings.NewReader(`{"name":"made"}`))
	r.Header.Set("Content-Type", "application/json")
	in.Act(w, r, console)
	if w.Code != http.StatusCreated {
		t.Fatalf("Act: got status %d and %s, want 201", w.Code, w.Body)
	}
	if got := entries(t, s.d); got[len(got)-1] != "key.made console:cs1 made" {
		t.Errorf("last entry of the audit log: got %q, want the new key by the console", got[len(got)-1])
	}
	s.stop()
	<-frontend.closed
}

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

// echoFrontend answers with the path of the request.
type echoFrontend struct{ closed chan struct{} }

func (echoFrontend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "door "+r.URL.Path)
}

func (d echoFrontend) Close() { close(d.closed) }

// P42: a Frontend can name the acting caller only within the process. No data from the network can name
// it.
func TestActing(t *testing.T) {
	opened := make(chan server.Backend, 1)
	frontend := echoFrontend{make(chan struct{})}
	s := serve(t, server.FrontendMount{Path: "/door", Open: func(in server.Backend) server.Frontend { opened <- in; return frontend }})
	in := <-opened
	for path, want := range map[string]bool{"/door": true, "/door/x": true, "/doors": false} {
		if _, body := s.get(false, path); strings.HasPrefix(body, "door ") != want {
			t.Errorf("%s: %s", path, body)
		}
	}
	console := sandbox.Principal{Local: true, Session: "cs1"}
	over := func(dial func(context.Context) (net.Conn, error)) int {
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
	if got := over(func(ctx context.Context) (net.Conn, error) { return in.DialAs(ctx, console) }); got != http.StatusOK {
		t.Errorf("over DialAs: %d", got)
	}
	if got := over(func(ctx context.Context) (net.Conn, error) { return in.DialAs(ctx, sandbox.Principal{}) }); got != http.StatusForbidden {
		t.Errorf("without an identity: %d", got)
	}
	for _, head := range []string{"Actor", "Session", "X-Crannog-Session", "Cookie"} {
		if got, _ := s.get(false, "/v1/keys", head, "console:cs1"); got != http.StatusUnauthorized {
			t.Errorf("with the header %s: %d", head, got)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/keys", strings.NewReader(`{"name":"made"}`))
	r.Header.Set("Content-Type", "application/json")
	in.Act(w, r, console)
	if w.Code != http.StatusCreated {
		t.Fatalf("a key: %d %s", w.Code, w.Body)
	}
	if got := entries(t, s.d); got[len(got)-1] != "key.made console:cs1 made" {
		t.Errorf("the audit log has %q", got[len(got)-1])
	}
	s.stop()
	<-frontend.closed
}

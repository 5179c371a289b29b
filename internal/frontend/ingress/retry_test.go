package ingress_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// pausesOnDial is the traffic of a sandbox that is paused when a request first connects to it.
type pausesOnDial struct {
	*inside
	once sync.Once
}

func (d *pausesOnDial) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	first := false
	d.once.Do(func() { first = true })
	if first {
		d.pause(id)
		return nil, fault.New(fault.Conflict, sandbox.CodeChanged, "it is being paused")
	}
	return d.inside.Dial(ctx, id, port)
}

// TestUnsentRequestIsRetriedAfterResume checks that a request that was not sent yet when its
// sandbox was paused is served after the resume. Requests with a body, and calls to Crannog's own
// servers, get an error: the body may have been read, and the call is already in the audit log.
func TestUnsentRequestIsRetriedAfterResume(t *testing.T) {
	for name, c := range map[string]struct {
		port   int
		method string
		body   string
		wake   bool
		status int
	}{
		"a program":   {3000, "GET", "", true, http.StatusOK},
		"an upload":   {3000, "POST", "all of it", true, http.StatusBadGateway},
		"the guest":   {guestboot.Port, "GET", "", true, http.StatusBadGateway},
		"not resumed": {3000, "GET", "", false, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestProxy(t)
			w.add(pausedID, func(s *sandbox.Sandbox) { resumesOnTraffic(s); s.OnEnd.Wake = c.wake })
			w.serve(pausedID, guestboot.Port, echoBody("guest"))
			w.serve(pausedID, 3000, echoBody("program"))
			p := ingress.New(ingress.Deps{Traffic: &pausesOnDial{inside: w.inside}, Waker: w.inside, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
			t.Cleanup(p.Close)
			front := httptest.NewServer(p)
			t.Cleanup(front.Close)
			req := w.requestTo(t, c.port, c.method, "/hello?a=b", "X-Access-Token", "token-"+pausedID)
			req.URL.Host = front.Listener.Addr().String()
			if c.body != "" {
				req.Body, req.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
			}
			a := w.send(t, req)
			if a.StatusCode != c.status {
				t.Fatalf("%d %s, want %d", a.StatusCode, a.text, c.status)
			}
			resumed := w.wakes()
			if served := c.status == http.StatusOK; served != (len(resumed) == 1) || served != (a.Header.Get("X-Uri") == "/hello?a=b") {
				t.Errorf("got resumes of %v, and the request %q inside", resumed, a.Header.Get("X-Uri"))
			}
		})
	}
}

package ingress_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
)

// changingSandbox finds a sandbox, but then fails to dial it or to return its redactor.
type changingSandbox struct {
	*inside
	dial, redactor error
}

func (l *changingSandbox) Dial(context.Context, string, int) (net.Conn, error) { return nil, l.dial }

func (l *changingSandbox) Redactor(context.Context, string) (*sandbox.Redactor, error) {
	return nil, l.redactor
}

// TestSandboxChangedDuringLookupIsNotFound checks a sandbox that is paused or rolled back during
// the look-up. Clients get the status of a sandbox that is not running, because they know no other.
func TestSandboxChangedDuringLookupIsNotFound(t *testing.T) {
	changed := fault.New(fault.Conflict, sandbox.CodeChanged, "it was changed")
	for name, l := range map[string]*changingSandbox{"dial": {dial: changed}, "redactor": {redactor: changed}} {
		w := newTestProxy(t)
		l.inside = w.inside
		p := ingress.New(ingress.Deps{Traffic: l, Waker: w.inside, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		t.Cleanup(p.Close)
		front := httptest.NewServer(p)
		t.Cleanup(front.Close)
		for _, port := range []int{3000, guestboot.Port} {
			req := w.request(t, port, http.MethodGet, "/health")
			req.URL.Host = front.Listener.Addr().String()
			if a := w.send(t, req); a.StatusCode != http.StatusBadGateway {
				t.Errorf("%s: %d %s", name, a.StatusCode, a.text)
			} else {
				wantRefusal(t, a, map[string]any{"sandboxId": boxID, "message": "The sandbox was not found", "code": 502.0})
			}
		}
	}
}

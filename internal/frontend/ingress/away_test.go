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

// leaving is the traffic of a sandbox that ends just after it was found.
type leaving struct {
	*inside
	dial, redactor error
}

func (l *leaving) Dial(context.Context, string, int) (net.Conn, error) { return nil, l.dial }

func (l *leaving) Redactor(context.Context, string) (*sandbox.Redactor, error) {
	return nil, l.redactor
}

// If a sandbox is paused or rolled back during the look-up, the answer is that of any other sandbox
// that is not running, because clients know no other status for it.
func TestASandboxThatIsChangedDoesNotRun(t *testing.T) {
	changed := fault.New(fault.Conflict, sandbox.CodeChanged, "it was changed")
	for name, l := range map[string]*leaving{"dial": {dial: changed}, "mask": {redactor: changed}} {
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

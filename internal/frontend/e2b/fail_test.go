package e2b

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// A request that is refused before its route gets the same body as any other error, with when to
// try again.
func TestWriteFailure(t *testing.T) {
	for want, err := range map[string]*fault.Error{
		`{"code":401,"message":"no key; send X-API-Key","error_code":"key_missing"}`: fault.New(fault.Unauthenticated, "key_missing", "no key").WithHint("send X-API-Key"),
		`{"code":429,"message":"too many","error_code":"overloaded"}`:                fault.New(fault.Exhausted, "overloaded", "too many").WithRetryAfter(1500 * time.Millisecond),
	} {
		w := httptest.NewRecorder()
		WriteFailure(w, err)
		if w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", w.Body, w.Header())
		}
		if after := w.Header().Get("Retry-After"); (after == "2") != (w.Code == http.StatusTooManyRequests) {
			t.Errorf("%d: try again after %q", w.Code, after)
		}
	}
}

package e2b

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// TestWriteFailure checks that a request that is rejected before its route gets the same body as
// any other error, with the header Retry-After.
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
			t.Errorf("status %d: got Retry-After %q", w.Code, after)
		}
	}
}

package keepalive_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/keepalive"
)

func TestInterval(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"50": 50 * time.Second, "1": time.Second, "": keepalive.Default, "0": keepalive.Default, "-5": keepalive.Default,
		"soon": keepalive.Default, "1.5": keepalive.Default, "99999999999": time.Hour, "9223372036854775807": time.Hour,
		"99999999999999999999": keepalive.Default,
	} {
		if got := keepalive.Interval(http.Header{keepalive.Header: {value}}); got != want {
			t.Errorf("Interval of %q: got %v, want %v", value, got, want)
		}
	}
}

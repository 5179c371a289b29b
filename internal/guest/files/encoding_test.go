package files

import (
	"errors"
	"net/http"
	"testing"
)

// Only clients that accept gzip and nothing else get compressed answers.
func TestNegotiateEncoding(t *testing.T) {
	const rejected = "rejected"
	for accept, want := range map[string]string{
		"": "", "*": "", "identity": "", "gzip": "gzip", "x-gzip": "gzip", "GZIP;Q=0.5": "gzip", "gzip, deflate, br": "",
		"gzip, *": "", "gzip;q=0": "", "gzip, identity": "", "gzip, identity;q=0": "gzip", "gzip, br, identity;q=0": "gzip",
		"gzip, *;q=0": "gzip", "br, gzip, *;q=0": "gzip", "br": "", "gzip;q=many": "gzip", ", ,": "",
		"identity;q=0": rejected, "*;q=0": rejected, "gzip;q=0, *;q=0": rejected, "br, identity;q=0": rejected, "identity, *;q=0": "",
	} {
		got, err := negotiate(accept)
		if r, ok := errors.AsType[*httpError](err); ok && r.status == http.StatusNotAcceptable {
			got = rejected
		} else if err != nil {
			t.Errorf("negotiate(%q): %v", accept, err)
		}
		if got != want {
			t.Errorf("negotiate(%q): got %q, want %q", accept, got, want)
		}
	}
}

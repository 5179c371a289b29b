package files

import (
	"errors"
	"net/http"
	"testing"
)

// Compression is only for clients that name gzip and nothing else, or refuse everything else.
func TestNegotiate(t *testing.T) {
	const refused = "refused"
	for accept, want := range map[string]string{
		"": "", "*": "", "identity": "", "gzip": "gzip", "x-gzip": "gzip", "GZIP;Q=0.5": "gzip", "gzip, deflate, br": "",
		"gzip, *": "", "gzip;q=0": "", "gzip, identity": "", "gzip, identity;q=0": "gzip", "gzip, br, identity;q=0": "gzip",
		"gzip, *;q=0": "gzip", "br, gzip, *;q=0": "gzip", "br": "", "gzip;q=many": "gzip", ", ,": "",
		"identity;q=0": refused, "*;q=0": refused, "gzip;q=0, *;q=0": refused, "br, identity;q=0": refused, "identity, *;q=0": "",
	} {
		got, err := negotiate(accept)
		if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusNotAcceptable {
			got = refused
		} else if err != nil {
			t.Errorf("%q: %v", accept, err)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", accept, got, want)
		}
	}
}

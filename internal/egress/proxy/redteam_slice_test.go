package proxy

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
)

// The attacks here were designed without knowledge of the defence. docs/internals/testing.md lists
// them, and which of them succeeded at first. Each tries to get a secret in parts that redaction
// does not recognise.
func TestPartialSecretAttacks(t *testing.T) {
	const text = "the key is " + secretValue + " and was kept"
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		asked := r.Header.Get("X-Byterange") + r.Header.Get("X-Byte-Ranges") + r.Header.Get("X-Goog-Range")
		switch {
		case r.URL.Path == "/early":
			rw.Header().Set("Link", "</"+secretValue+">; rel=preload")
			rw.WriteHeader(http.StatusEarlyHints)
			_, _ = io.WriteString(rw, "done")
		case r.URL.Path == "/twice":
			rw.Header()[textproto.CanonicalMIMEHeaderKey("Content-Encoding")] = []string{"gzip", "gzip"}
			outer := gzip.NewWriter(rw)
			inner := gzip.NewWriter(outer)
			_, _ = io.WriteString(inner, text)
			_ = inner.Close()
			_ = outer.Close()
		case asked != "" || strings.Contains(r.URL.RawQuery, "Range"):
			rw.WriteHeader(http.StatusOK) // the status does not show that this is a part
			_, _ = io.WriteString(rw, text[16:26])
		default:
			_, _ = io.WriteString(rw, text)
		}
	}, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	partOfSecret := secretValue[5:15]
	for name, c := range map[string]struct {
		method, url string
		header      http.Header
	}{
		"a range header in one word": {"GET", "https://api.good.test/x", http.Header{"X-Byterange": {"bytes=16-25"}}},
		"a header with ranges":       {"GET", "https://api.good.test/x", http.Header{"X-Byte-Ranges": {"bytes=16-25"}}},
		"a header in the query":      {"GET", "https://api.good.test/x?$httpHeaders=Range%3Abytes%3D16-25", nil},
		"a POST":                     {"POST", "https://api.good.test/x", http.Header{"X-Goog-Range": {"bytes=16-25"}}},
		"a header of an early hint":  {"GET", "https://api.good.test/early", nil},
		"two encodings":              {"GET", "https://api.good.test/twice", nil},
	} {
		code, body := b.do(c.method, c.url, "", c.header)
		if strings.Contains(body, partOfSecret) || strings.Contains(body, secretValue) {
			t.Errorf("%s: the response contains the secret or a part: %d %s", name, code, body)
		}
	}
	// Control: the complete response arrives, redacted.
	if code, body := b.get("https://api.good.test/x"); code != 200 || !strings.Contains(body, "the key is ***") {
		t.Errorf("control: got %d %s, want 200 and a redacted body", code, body)
	}
}

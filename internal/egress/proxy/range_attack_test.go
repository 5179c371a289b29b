package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// serveRanges answers with the part that any of the usual headers requests, as object stores and
// old servers do. Every path has the secret in its text.
func serveRanges(rw http.ResponseWriter, r *http.Request) {
	const text = "the key is " + secretValue + " and was kept"
	sendRange := func(unit string) {
		from, to, _ := strings.Cut(strings.TrimPrefix(unit, "bytes="), "-")
		first, err := strconv.Atoi(from)
		last, bad := strconv.Atoi(to)
		if err != nil || bad != nil || last >= len(text) {
			panic(unit)
		}
		rw.Header().Set("Content-Range", "bytes "+from+"-"+to+"/"+strconv.Itoa(len(text)))
		rw.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(rw, text[first:last+1])
	}
	for _, name := range []string{"Range", "Request-Range", "X-Ms-Range", "X_range"} {
		if v := r.Header.Get(name); v != "" {
			sendRange(v)
			return
		}
	}
	switch {
	case r.Header.Get("A-Im") != "":
		rw.Header().Set("Im", "range")
		rw.WriteHeader(http.StatusIMUsed)
		_, _ = io.WriteString(rw, text[16:26])
	case r.URL.Path == "/rows": // numbered like the rows of PostgREST
		rw.Header().Set("Content-Range", "0-24/100")
		rw.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(rw, "rows")
	case r.URL.Path == "/part":
		sendRange("bytes=16-25")
	case r.URL.Path == "/parts":
		rw.Header().Set("Content-Type", "multipart/byteranges; boundary=b")
		_, _ = io.WriteString(rw, "--b\r\n\r\n"+text[16:26]+"\r\n--b\r\n\r\n"+text[26:36]+"\r\n--b--")
	default:
		_, _ = io.WriteString(rw, text)
	}
}

// Attack: a sandbox requests parts of a stored secret, which redaction does not recognise.
// Regression: this was prevented only if the secret was set on the request itself.
func TestPartialResponsesAreRefused(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", serveRanges, "api.good.test", "ws.good.test")
	b := w.newSandbox(boundHost, func(c *Config) {
		s := token("api.good.test")
		s.Paths = []string{"/v1/**"}
		c.Secrets = append(c.Secrets, s)
	})
	partOfSecret := secretValue[5:15]
	for _, path := range []string{"/v1/x", "/kept/elsewhere"} {
		for name, h := range map[string]http.Header{
			"Range":         {"Range": {"bytes=16-25"}},
			"Request-Range": {"Request-Range": {"bytes=16-25"}},
			"X-Ms-Range":    {"X-Ms-Range": {"bytes=16-25"}},
			"with _":        {"X_range": {"bytes=16-25"}},
			"A-IM":          {"A-Im": {"range"}},
		} {
			code, body := b.do("GET", "https://api.good.test"+path, "", h)
			if strings.Contains(body, partOfSecret) || code != 200 && code != 502 {
				t.Errorf("%s of %s: got %d %s, want the complete response or 502", name, path, code, body)
			}
			if code == 200 && !strings.Contains(body, "the key is ***") {
				t.Errorf("%s of %s: the response is not redacted: %s", name, path, body)
			}
		}
	}
	if code, body := b.get("https://api.good.test/rows"); code != 206 || body != "rows" {
		t.Errorf("rows of a table: got %d %s, want 206", code, body)
	}
	for _, path := range []string{"/part", "/parts"} {
		if code, body := b.get("https://api.good.test" + path); code != 502 || strings.Contains(body, partOfSecret) {
			t.Errorf("%s, a part that was not requested: got %d %s, want 502", path, code, body)
		}
	}
	// Control: a host that knows no secret may send parts.
	b = w.newSandbox(strings.Replace(boundHost, "host: ws.good.test, ports: [443], rules: [{", "host: ws.good.test, rules: [{methods: [GET], ", 1), withToken)
	code, body := b.do("GET", "https://ws.good.test/", "", http.Header{"Range": {"bytes=16-25"}})
	if code != 206 || body != partOfSecret {
		t.Errorf("control: got %d %s, want the part", code, body)
	}
}

// In an upload, a range is where to write, so it is forwarded.
func TestUploadsKeepRanges(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	h := http.Header{"Content-Range": {"bytes 0-3/8"}, "X-Ms-Range": {"bytes=0-3"}}
	if code, _ := b.do("PUT", "https://api.good.test/upload", "abcd", h); code != 200 {
		t.Fatalf("the upload: got %d, want 200", code)
	}
	if got := up.log()[0].Header; got.Get("Content-Range") == "" || got.Get("X-Ms-Range") == "" {
		t.Errorf("upstream got the header %v, want both ranges", got)
	}
	// A copy of a part could be read completely afterwards.
	for _, name := range []string{"X-Amz-Copy-Source-Range", "X-Ms-Source-Range"} {
		if code, _ := b.do("PUT", "https://api.good.test/copy", "", http.Header{name: {"bytes=0-3"}}); code != 403 {
			t.Errorf("a copy with %s: got %d, want 403", name, code)
		}
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream got %+v, want the upload only", up.log())
	}
}

package proxy

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// pieces answers with the part that any of the usual headers requests, like object stores and old
// servers, and stores what it receives on any path.
func pieces(rw http.ResponseWriter, r *http.Request) {
	const text = "the key is " + value + " and was kept"
	wants := func(unit string) {
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
			wants(v)
			return
		}
	}
	switch {
	case r.Header.Get("A-Im") != "":
		rw.Header().Set("Im", "range")
		rw.WriteHeader(http.StatusIMUsed)
		_, _ = io.WriteString(rw, text[16:26])
	case r.URL.Path == "/rows": // as PostgREST numbers them
		rw.Header().Set("Content-Range", "0-24/100")
		rw.WriteHeader(http.StatusPartialContent)
		_, _ = io.WriteString(rw, "rows")
	case r.URL.Path == "/part":
		wants("bytes=16-25")
	case r.URL.Path == "/parts":
		rw.Header().Set("Content-Type", "multipart/byteranges; boundary=b")
		_, _ = io.WriteString(rw, "--b\r\n\r\n"+text[16:26]+"\r\n--b\r\n\r\n"+text[26:36]+"\r\n--b--")
	default:
		_, _ = io.WriteString(rw, text)
	}
}

// Finding S5: a host that may know a secret was asked for a part of it, which redaction does not
// recognise, if the secret was not set on that request itself.
func TestFindingS5NoSlicesOfASecret(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", pieces, "api.good.test", "ws.good.test")
	b := w.newSandbox(boundHost, func(c *Config) {
		s := token("api.good.test")
		s.Paths = []string{"/v1/**"}
		c.Secrets = append(c.Secrets, s)
	})
	piece := value[5:15]
	for _, path := range []string{"/v1/x", "/kept/elsewhere"} {
		for name, h := range map[string]http.Header{
			"Range":         {"Range": {"bytes=16-25"}},
			"Request-Range": {"Request-Range": {"bytes=16-25"}},
			"X-Ms-Range":    {"X-Ms-Range": {"bytes=16-25"}},
			"with _":        {"X_range": {"bytes=16-25"}},
			"A-IM":          {"A-Im": {"range"}},
		} {
			code, body := b.do("GET", "https://api.good.test"+path, "", h)
			if strings.Contains(body, piece) || code != 200 && code != 502 {
				t.Errorf("%s of %s: %d %s", name, path, code, body)
			}
			if code == 200 && !strings.Contains(body, "the key is ***") {
				t.Errorf("%s of %s: %s", name, path, body)
			}
		}
	}
	if code, body := b.get("https://api.good.test/rows"); code != 206 || body != "rows" {
		t.Errorf("rows of a table: %d %s", code, body)
	}
	for _, path := range []string{"/part", "/parts"} {
		if code, body := b.get("https://api.good.test" + path); code != 502 || strings.Contains(body, piece) {
			t.Errorf("a part that was not requested, %s: %d %s", path, code, body)
		}
	}
	// Control: a host that knows no secret may send parts.
	b = w.newSandbox(strings.Replace(boundHost, "host: ws.good.test, ports: [443], rules: [{", "host: ws.good.test, rules: [{methods: [GET], ", 1), withToken)
	code, body := b.do("GET", "https://ws.good.test/", "", http.Header{"Range": {"bytes=16-25"}})
	if code != 206 || body != piece {
		t.Errorf("the control: %d %s", code, body)
	}
}

// In a write, ranges say where to write, and stay.
func TestFindingS5UploadsKeepTheirRanges(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(boundHost, withToken)
	h := http.Header{"Content-Range": {"bytes 0-3/8"}, "X-Ms-Range": {"bytes=0-3"}}
	if code, _ := b.do("PUT", "https://api.good.test/upload", "abcd", h); code != 200 {
		t.Fatalf("code %d", code)
	}
	if got := up.log()[0].Header; got.Get("Content-Range") == "" || got.Get("X-Ms-Range") == "" {
		t.Errorf("upstream got %v", got)
	}
	// A copy of a part could be read as a whole afterwards.
	for _, name := range []string{"X-Amz-Copy-Source-Range", "X-Ms-Source-Range"} {
		if code, _ := b.do("PUT", "https://api.good.test/copy", "", http.Header{name: {"bytes=0-3"}}); code != 403 {
			t.Errorf("%s: %d", name, code)
		}
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream saw %+v", up.log())
	}
}

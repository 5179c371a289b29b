package proxy

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The attacks here were designed without knowledge of the defence. docs/internals/testing.md lists
// them, and which of them succeeded at first.
func TestMethodOverrideAttacks(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(`
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: api.good.test, rules: [{methods: [GET, POST], paths: ["/items/**"], do: allow}, {methods: [PATCH], do: allow}, {methods: [DELETE], do: deny}]}
`)
	const items = "https://api.good.test/items/1"
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for name, c := range map[string]struct {
		method, url, body string
		header            http.Header
	}{
		// Google's front ends accept these from browsers, which cannot set the header.
		"Google's query":                {"POST", items + "?$httpMethod=DELETE", "", nil},
		"Google's query, escaped":       {"POST", items + "?%24httpMethod=DELETE", "", nil},
		"headers in the query":          {"POST", items + "?$httpHeaders=X-HTTP-Method-Override%3ADELETE%0D%0A", "", nil},
		"a path in the query's headers": {"POST", items + "?%24httpHeaders=Accept:x%0AX-Original-URL:/admin", "", nil},
		"another path":                  {"GET", items, "", http.Header{"X-Original-Path": {"/admin"}}},
		"a forwarded path":              {"GET", items, "", http.Header{"X-Forwarded-Path": {"/admin"}}},
		"a form":                        {"POST", items, "a=1&_method=DELETE", form},
		"a form, escaped":               {"POST", items, "a=1&%5fmethod=delete", form},
		"a form with a charset":         {"POST", items, "_method=DELETE", http.Header{"Content-Type": {"Application/X-WWW-Form-Urlencoded; charset=utf-8"}}},
		"a form with much other data":   {"POST", items, "a=" + strings.Repeat("x", 300<<10) + "&_method=DELETE", form},
		"a form with files":             {"POST", items, "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n", http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}},
		"a header named in Connection":  {"POST", items, "", http.Header{"X-Http-Method-Override": {"DELETE"}, "Connection": {"x"}}},
		"two values":                    {"POST", items, "", http.Header{"X-Http-Method-Override": {"POST", "DELETE"}}},
	} {
		if code, body := b.do(c.method, c.url, c.body, c.header); code != 403 && code != 400 {
			t.Errorf("%s: got %d %.100s, want 403 or 400", name, code, body)
		}
	}
	// Control: forms and queries without an effective override.
	for name, c := range map[string]struct{ url, body string }{
		"a form":                  {items, "method=DELETE&x=_method"},
		"the same method":         {items, "_method=POST&x=1"},
		"Google's query with GET": {items + "?$httpMethod=GET&$httpHeaders=Accept%3Ax", "x=1"},
	} {
		if code, body := b.do("POST", c.url, c.body, form); code != 200 {
			t.Errorf("control: %s: got %d %.100s, want 200", name, code, body)
		}
	}
	files := "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n" + strings.Repeat("method ", 40<<10) + "\r\n--b--\r\n"
	if code, body := b.do("POST", items, files, http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}); code != 200 {
		t.Errorf("control: a form with a file: got %d %.100s, want 200", code, body)
	}
	// The beginning of an attack with a multipart form may have reached upstream, but never all of
	// it.
	var bodies []string
	for _, r := range up.log() {
		if r.Body != "" {
			bodies = append(bodies, r.Body)
		} else if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
			t.Errorf("upstream got a request that is no control: %+v", r)
		}
	}
	if len(bodies) != 4 || !slices.Contains(bodies, "method=DELETE&x=_method") || bodies[3] != files {
		t.Errorf("upstream got the bodies %.100q, want those of the controls", bodies)
	}
}

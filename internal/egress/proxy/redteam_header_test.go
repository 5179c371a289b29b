package proxy

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The attacks here were designed without knowledge of the fix of the finding.
// docs/internals/testing.md lists them, and which succeeded.

// S4: more ways to override the method or path, and a header that the sender wants removed on the
// way.
func TestFindingS4RedTeam(t *testing.T) {
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
		// As Google's front ends take them from browsers that may send no header.
		"Google's query":             {"POST", items + "?$httpMethod=DELETE", "", nil},
		"Google's query, escaped":    {"POST", items + "?%24httpMethod=DELETE", "", nil},
		"headers in the query":       {"POST", items + "?$httpHeaders=X-HTTP-Method-Override%3ADELETE%0D%0A", "", nil},
		"a path in the query's":      {"POST", items + "?%24httpHeaders=Accept:x%0AX-Original-URL:/admin", "", nil},
		"another path":               {"GET", items, "", http.Header{"X-Original-Path": {"/admin"}}},
		"a forwarded path":           {"GET", items, "", http.Header{"X-Forwarded-Path": {"/admin"}}},
		"a form":                     {"POST", items, "a=1&_method=DELETE", form},
		"a form, escaped":            {"POST", items, "a=1&%5fmethod=delete", form},
		"a form with a charset":      {"POST", items, "_method=DELETE", http.Header{"Content-Type": {"Application/X-WWW-Form-Urlencoded; charset=utf-8"}}},
		"a form, behind much":        {"POST", items, "a=" + strings.Repeat("x", 300<<10) + "&_method=DELETE", form},
		"a form with files":          {"POST", items, "--b\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--b--\r\n", http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}},
		"the header by Connection":   {"POST", items, "", http.Header{"X-Http-Method-Override": {"DELETE"}, "Connection": {"x"}}},
		"two values of which one is": {"POST", items, "", http.Header{"X-Http-Method-Override": {"POST", "DELETE"}}},
	} {
		if code, body := b.do(c.method, c.url, c.body, c.header); code != 403 && code != 400 {
			t.Errorf("%s: %d %.100s", name, code, body)
		}
	}
	// Control: forms and queries without overrides.
	for name, c := range map[string]struct{ url, body string }{
		"a form":          {items, "method=DELETE&x=_method"},
		"its own method":  {items, "_method=POST&x=1"},
		"Google's, alike": {items + "?$httpMethod=GET&$httpHeaders=Accept%3Ax", "x=1"},
	} {
		if code, body := b.do("POST", c.url, c.body, form); code != 200 {
			t.Errorf("the control, %s: %d %.100s", name, code, body)
		}
	}
	files := "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n" + strings.Repeat("method ", 40<<10) + "\r\n--b--\r\n"
	if code, body := b.do("POST", items, files, http.Header{"Content-Type": {"multipart/form-data; boundary=b"}}); code != 200 {
		t.Errorf("the control, files: %d %.100s", code, body)
	}
	// The beginning of the form with files may have arrived, but never the whole.
	var whole []string
	for _, r := range up.log() {
		if r.Body != "" {
			whole = append(whole, r.Body)
		} else if !strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
			t.Errorf("upstream saw %+v", r)
		}
	}
	if len(whole) != 4 || !slices.Contains(whole, "method=DELETE&x=_method") || whole[3] != files {
		t.Errorf("upstream saw %.100q", whole)
	}
}

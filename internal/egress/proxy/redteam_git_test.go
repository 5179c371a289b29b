package proxy

import (
	"net/http"
	"testing"
)

// The attacks here were designed without knowledge of the defence. docs/internals/testing.md lists
// them, and which of them succeeded at first.
func TestForgedGitRequestsAreDenied(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "git.test")
	b := w.newSandbox(`
level: minimal
network: {unlisted: deny, writes: deny, hosts: [{host: git.test, rules: [{do: allow}]}]}
git: {remotes: [{host: git.test, repo: "acme/**", push: ["refs/**"]}]}
`)
	fetch := func(more ...string) http.Header { return withContentType(fetchType, more...) }
	for name, c := range map[string]struct {
		method, url, body string
		header            http.Header
	}{
		"a method in the query":                 {"POST", "https://git.test/acme/pay.git/git-upload-pack?_method=DELETE", "0000", fetch()},
		"a method in a header":                  {"POST", "https://git.test/acme/pay.git/git-upload-pack", "0000", fetch("X-Http-Method", "DELETE")},
		"a path in a header":                    {"POST", "https://git.test/acme/pay.git/git-upload-pack", "0000", fetch("X-Original-Url", "/api/keys")},
		"escaped parent directories":            {"POST", "https://git.test/acme/pay.git%2f..%2f..%2fapi/keys/git-upload-pack", "0000", fetch()},
		"parent directories":                    {"POST", "https://git.test/acme/pay.git/../../api/git-upload-pack", "0000", fetch()},
		"an unlisted repository":                {"POST", "https://git.test/evil/pay.git/git-upload-pack", "0000", fetch()},
		"a second content type":                 {"POST", "https://git.test/acme/pay.git/git-upload-pack", "{}", http.Header{"Content-Type": {fetchType, "application/json"}}},
		"a content type with parameters":        {"POST", "https://git.test/acme/pay.git/git-upload-pack", "{}", http.Header{"Content-Type": {fetchType + "; charset=json"}}},
		"a server not known to be a git server": {"POST", "https://git.test/acme/pay.git/git-upload-pack", `{"order": 1}`, fetch()},
	} {
		code, body := b.do(c.method, c.url, c.body, c.header)
		if code == 200 {
			t.Errorf("%s: got %d %.100s, want a denial", name, code, body)
		}
	}
	if n := len(up.log()); n != 0 {
		t.Errorf("upstream got %+v, want nothing", up.log())
	}
	// Control: a read of the same host is allowed.
	if code, _ := b.get("https://git.test/acme/pay.git/info/refs?service=git-upload-pack"); code != 200 {
		t.Errorf("control: got %d, want 200", code)
	}
}

package causeway_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestFindings repeats the findings of a security review of the gateway, from inside one sandbox.
// Each has a control: a request that must succeed.
func TestFindings(t *testing.T) {
	need(t, hosttest.Git)
	t.Parallel()
	a := sharedEnvironment(t)
	_, forge := forge(t, a, "git.f.test")
	registry := a.web(t, 443, nil, "registry.f.test")
	a.web(t, 443, serveStoredKey, "kept.f.test", "open.f.test")
	a.storeSecret(t, "F", canary)
	b := a.newSandbox(t, `
level: light
network:
  unlisted: deny
  writes: ask
  hosts:
    - {host: git.f.test, rules: [{do: allow}]}
    - {host: registry.f.test, rules: [{do: allow}]}
    - {host: kept.f.test, rules: [{do: allow}]}
    - {host: open.f.test, rules: [{do: allow}]}
git:
  fetch: allow
  push: {unlisted: allow, delete: allow, force: allow}
  remotes: [{host: git.f.test, repo: acme/pay}, {host: registry.f.test, repo: "**"}]
packages: {publish: ask}
secrets: {bind: [{name: F, host: kept.f.test, header: Authorization, paths: ["/v1/**"]}]}
`)
	p := newApprovers(t, a)
	p.answer(func(api.Approval) bool { return false })
	t.Run("S1", func(t *testing.T) { findingS1(t, b, p, forge, registry) })
	t.Run("S4", func(t *testing.T) { findingS4(t, b, p) })
	t.Run("S5", func(t *testing.T) { findingS5(t, b) })
	t.Run("S6", func(t *testing.T) { findingS6(t, b) })
}

// Finding S1: with a certain header or path suffix, any request counted as a fetch. A fetch needs
// no permission to write, publishes nothing, and its approval request shows no method and body.
func findingS1(t *testing.T, b *testSandbox, p *approvers, forge, registry *web) {
	// Control: git itself fetches without an approval, in all versions of the protocol, by both
	// names of the repository, and with compressed requests.
	b.must(`cd /tmp && for v in 0 1 2; do for name in pay.git pay; do rm -rf work && git -c protocol.version=$v clone -q https://git.f.test/acme/$name work || exit 1; done; done
cd work && for i in $(seq 60); do git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m $i || exit 1; done; git fetch -q origin`)
	if n := len(p.asked()); n != 0 || len(forge.seen()) < 12 {
		t.Fatalf("git itself was asked about %d times", n)
	}
	if got := b.line("print(status(get('registry.f.test', '/acme/pay/info/refs?service=git-upload-pack')))"); got != "200" {
		t.Fatalf("a read from the registry: got %s, want 200", got)
	}
	before, reads := len(forge.seen()), len(registry.seen())
	const fetch, push = "application/x-git-upload-pack-request", "application/x-git-receive-pack-request"
	tries := [][4]string{ // host, method and target, body, content type
		{"registry.f.test", "PUT /api/v1/crates/new", "crate", fetch},
		{"registry.f.test", "DELETE /v2/acme/pay/manifests/v1", "0000", push},
		{"registry.f.test", "DELETE /v2/acme/pay/manifests/git-receive-pack", "0000", "text/plain"},
		{"registry.f.test", "POST /acme/payments/git-upload-pack", `{"to": "evil"}`, fetch},
		{"registry.f.test", "POST /acme/pay/git-upload-pack", "0000", fetch},
		{"git.f.test", "DELETE /acme/pay", "", fetch},
		{"git.f.test", "PUT /acme/pay/git-upload-pack", "stolen", fetch},
		{"git.f.test", "POST /acme/pay/git-upload-pack?to=evil", "0000", fetch},
		{"git.f.test", "POST /acme/pay/git-upload-pack", "stolen", fetch},
		{"git.f.test", "POST /other/pay/git-upload-pack", "0000", fetch},
	}
	var text strings.Builder
	for _, c := range tries {
		method, target, _ := strings.Cut(c[1], " ")
		fmt.Fprintf(&text, "print(status(get(%q, %q, method=%q, body=%q, extra='Content-Type: %s\\r\\n')))\n", c[0], target, method, c[2], c[3])
	}
	got := b.python(text.String())
	asked := p.asked()
	if len(asked) != len(tries) || len(got) != len(tries) {
		t.Fatalf("got answers %q and %d approval requests, want %d of each: %+v", got, len(asked), len(tries), asked)
	}
	for i, c := range tries {
		method, target, _ := strings.Cut(c[1], " ")
		facts := asked[i].Facts
		if got[i] != "403" || facts["method"] != method || facts["target"] != "https://"+c[0]+target || len(facts["body_sha256"]) != 64 {
			t.Errorf("%v: got %s and the approval request %+v, want a denial", c, got[i], asked[i])
		}
	}
	if len(forge.seen()) != before || len(registry.seen()) != reads {
		t.Errorf("denied requests reached the servers: %+v %+v", forge.seen()[before:], registry.seen()[reads:])
	}
	// An approval covers exactly one request.
	p.answer(func(q api.Approval) bool { return q.Kind == "pkg.publish" && q.Facts["method"] == http.MethodPut })
	b.requireLines(b.python(text.String()[:strings.IndexByte(text.String(), '\n')+1]), "403") // it was denied before
	b.requireLines(b.python("print(status(get('registry.f.test', '/api/v1/crates/new', method='PUT', body='crate 2')))"), "200")
	if s := registry.seen(); len(s) != reads+1 || s[reads].Body != "crate 2" {
		t.Errorf("the registry saw %+v", s[reads:])
	}
}

// serveStoredKey returns the canary on any path, in parts if requested.
func serveStoredKey(w http.ResponseWriter, r *http.Request) {
	const text = "the key is " + canary + "."
	if r.URL.Path == "/name" {
		w.Header()[canary] = []string{"header"}
		w.Header()[http.TrailerPrefix+canary] = []string{"trailer"}
		w.Header()["X-Plain"] = []string{"yes"}
		_, _ = io.WriteString(w, "hello")
		return
	}
	for _, name := range []string{"Request-Range", "X-Ms-Range"} {
		if v := r.Header.Get(name); v != "" {
			r.Header.Set("Range", v)
		}
	}
	http.ServeContent(w, r, "key.txt", time.Time{}, strings.NewReader(text))
}

// Finding S5: on a path to which the secret is not bound, a program read the secret in small
// ranges, which redaction does not recognise.
func findingS5(t *testing.T, b *testSandbox) {
	got := b.python(canaryParts + `
def read(host, path, header):
    out, codes = '', set()
    for i in range(0, 50, 5):
        a = get(host, path, extra='%s: bytes=%d-%d\r\n' % (header, i, i + 4))
        codes.add(status(a))
        out += body(a)
    return sorted(codes), K in out
print(get('kept.f.test', '/v1/key').count('*') > 20)
for path in ('/v1/key', '/elsewhere'):
    for header in ('Range', 'Request-Range', 'X-Ms-Range', 'range'):
        print(read('kept.f.test', path, header))
print(read('open.f.test', '/elsewhere', 'Range'))
`)
	want := append(append([]string{"True"}, slices.Repeat([]string{"(['200'], False)"}, 8)...), "(['206', '416'], True)")
	b.requireLines(got, want...)
	if out, _ := b.sh("curl -sS -m 300 -r 16-25 https://kept.f.test/elsewhere; curl -sS -m 300 -I https://kept.f.test/elsewhere"); !contains(out, "the key is ***", "none") || contains(out, canary[5:15]) {
		t.Errorf("curl: %s", out)
	}
}

// Finding S4: a header changed the meaning of an approved request, or of a request that counted as
// a read.
func findingS4(t *testing.T, b *testSandbox, p *approvers) {
	p.answer(func(q api.Approval) bool { return q.Facts["header_x-amz-target"] == "Ledger.Get" })
	before := len(p.asked())
	b.requireLines(b.python(`
def call(extra, method='POST', path='/'): return status(get('open.f.test', path, method=method, extra=extra))
print(call('X-Amz-Target: Ledger.Get\r\nCookie: account=mine\r\nX-Request-Id: 1\r\n'))
print(call('X-Amz-Target: Ledger.Delete\r\nCookie: account=mine\r\n'))
print(call('', 'GET'), call('X-HTTP-Method-Override: GET\r\n', 'GET'))
print(call('X_HTTP_Method_Override: DELETE\r\n', 'GET'), call('', 'GET', '/?_method=DELETE'), call('X-Original-URL: /../x\r\n', 'GET'))
`), "200", "403", "200 200", "403 403 400")
	asked := p.asked()[before:]
	if len(asked) != 4 {
		t.Fatalf("asked %+v", asked)
	}
	for name, value := range asked[0].Facts {
		if contains(value, "account=mine") || contains(name, "request-id") {
			t.Errorf("the approval request shows %s: %s", name, value)
		}
	}
	if asked[0].Facts["header_cookie_sha256"] == "" || asked[1].Facts["header_x-amz-target"] != "Ledger.Delete" {
		t.Errorf("the approval requests have the facts %v and %v", asked[0].Facts, asked[1].Facts)
	}
}

// Finding S6: a secret was shown as the name of a header or a trailer.
func findingS6(t *testing.T, b *testSandbox) {
	b.requireLines(b.python(canaryParts+`
for host in ('kept.f.test', 'open.f.test'):
    a = get(host, '/name').lower()
    print(status(a.upper()), K in a, 'x-plain: yes' in a)
`), "200 False True", "200 True True")
	if out, _ := b.sh("curl -sS -m 300 -D - https://kept.f.test/name | tr -d '\r' | sed 's/sk-canary-4f9a/found/'"); contains(out, "found") || !contains(out, "x-plain: yes") {
		t.Errorf("curl: %s", out)
	}
}

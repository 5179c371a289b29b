package proxy

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Regression: headers that change a request's effect were not part of a grant.
func TestGrantCoversSameHeadersOnly(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	d := &approvals{}
	b := w.newSandbox(askPolicy)
	b.people.answer = d.answer
	base := func(more ...string) http.Header {
		h := http.Header{
			"X-Amz-Target": {"Ledger.GetItem"}, "Cookie": {"account=mine"}, "Soapaction": {"urn:read"}, "Private-Token": {"mine"},
			"User-Agent": {"one"}, "Traceparent": {"00-1"},
		}
		for i := 0; i < len(more); i += 2 {
			h[http.CanonicalHeaderKey(more[i])] = []string{more[i+1]}
		}
		return h
	}
	send := func(more ...string) int {
		code, _ := b.do("POST", "https://api.good.test/", "{}", base(more...))
		return code
	}
	if code := send(); code != 403 {
		t.Fatalf("an unapproved request: got %d, want 403", code)
	}
	q := b.people.questions()[0]
	d.approve(q)
	for _, more := range [][]string{
		{"X-Amz-Target", "Ledger.DeleteTable"}, {"Soapaction", "urn:pay"}, {"Cookie", "account=evil"}, {"Private-Token", "evil"},
		{"X-HTTP-Method-Override", "POST"}, {"X-Original-URL", "/"}, {"Dropbox-Api-Arg", `{"path": "/evil"}`},
		{"X-Amz-Copy-Source", "/others/secret"}, {"Prefer", "respond-async"}, {"X-Api-Key", "evil"}, {"Forwarded", "host=evil"},
	} {
		if code := send(more...); code != 403 {
			t.Errorf("a request with another header %s than approved: got %d, want 403", more[0], code)
		}
	}
	if n := len(up.log()); n != 0 {
		t.Fatalf("upstream got %+v, want nothing", up.log())
	}
	// Control: harmless headers may differ when the request is repeated.
	if code := send("User-Agent", "two", "Traceparent", "00-2"); code != 200 {
		t.Errorf("the approved request: got %d, want 200", code)
	}
	// The approval request displays all headers, but no credentials.
	if got := q.Facts["header_x-amz-target"]; got != "Ledger.GetItem" {
		t.Errorf("the header X-Amz-Target is displayed as %q in %v", got, q.Facts)
	}
	for name, text := range q.Facts {
		if text == "mine" || text == "account=mine" {
			t.Errorf("the fact %s displays a credential", name)
		}
	}
}

// Regression: only three of the headers and fields that override the method or path were known.
func TestMethodAndPathOverridesAreDecided(t *testing.T) {
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
	for name, c := range map[string]struct {
		url    string
		header http.Header
	}{
		"a header":                     {items, http.Header{"X-Http-Method-Override": {"DELETE"}}},
		"a header with _":              {items, http.Header{"X_http_method_override": {"DELETE"}}},
		"another header":               {items, http.Header{"X-Method": {"DELETE"}}},
		"a second value":               {items, http.Header{"X-Http-Method": {"GET, DELETE"}}},
		"the query":                    {items + "?_method=DELETE", nil},
		"the query, escaped":           {items + "?%5Fmethod=%44ELETE", nil},
		"a header's name in the query": {items + "?x-http-method-override=delete", nil},
		"another path":                 {items, http.Header{"X-Original-Url": {"/admin"}}},
		"another path with _":          {items, http.Header{"X_rewrite_url": {"/admin?x=1"}}},
		"an ambiguous path":            {items, http.Header{"X-Original-Url": {"/items/../admin"}}},
		"another URL":                  {items, http.Header{"X-Rewrite-Url": {"https://api.good.test/admin"}}},
	} {
		for _, method := range []string{"GET", "POST"} {
			if code, body := b.do(method, c.url, "", c.header); code != 403 && code != 400 {
				t.Errorf("%s with %s: got %d %.100s, want 403 or 400", method, name, code, body)
			}
		}
	}
	if n := len(up.log()); n != 0 {
		t.Errorf("upstream got %+v, want nothing", up.log())
	}
	for name, c := range map[string]struct {
		url    string
		header http.Header
	}{
		"fields that override nothing": {items + "?method=DELETE&_methods=DELETE", nil},
		"allowed overrides":            {items, http.Header{"X-Http-Method-Override": {"GET"}, "X-Original-Url": {"/items/2?x=1"}}},
	} {
		if code, _ := b.do("POST", c.url, "", c.header); code != 200 {
			t.Errorf("control: %s: got %d, want 200", name, code)
		}
	}
}

// Regression: a secret that is bound to reads of some paths was set on a request whose headers
// override the method or the path.
func TestSecretIsNotSetOnOverriddenRequest(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(boundHost, withTokenForReads)
	auth := func(url string, h http.Header) string {
		t.Helper()
		before := len(up.log())
		if code, body := b.do("GET", url, "", h); code != 200 && code != 403 && code != 400 {
			t.Fatalf("GET %s: got %d %s", url, code, body)
		}
		if l := up.log(); len(l) > before {
			return l[before].Auth
		}
		return ""
	}
	const good = "https://api.good.test/v1/x"
	for name, h := range map[string]http.Header{
		"a deletion":        {"X-Http-Method-Override": {"DELETE"}},
		"a deletion with _": {"X_http_method": {"DELETE"}},
		"another path":      {"X-Original-Url": {"/v2/keys"}},
		"a rewritten path":  {"X-Rewrite-Url": {"/v2"}},
	} {
		if got := auth(good, h); got != "" {
			t.Errorf("the request with %s carried the secret", name)
		}
	}
	if got := auth(good+"?_method=DELETE", nil); got != "" {
		t.Error("the request with a method in its query carried the secret")
	}
	if auth(good, nil) == "" || auth(good, http.Header{"X-Http-Method-Override": {"GET"}, "X-Original-Url": {"/v1/y"}}) == "" {
		t.Error("control: a bound request did not carry the secret")
	}
}

// A request that cannot be displayed completely is refused without an approval request. Otherwise a
// grant would cover parts that no person has seen.
func TestRequestThatCannotBeDisplayedIsRefused(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	d := &approvals{}
	b := w.newSandbox(askPolicy)
	b.people.answer = d.answer
	many := http.Header{}
	for i := range 41 {
		many["X-H"+strconv.Itoa(i)] = []string{"v"}
	}
	for name, c := range map[string]struct {
		url    string
		header http.Header
		want   int
	}{
		"many headers":       {"https://api.good.test/", many, 431},
		"a long header":      {"https://api.good.test/", http.Header{"X-Arg": {strings.Repeat("a", 13<<10)}}, 431},
		"an unknown letter":  {"https://api.good.test/", http.Header{"X-A!b": {"v"}}, 431},
		"a long URL":         {"https://api.good.test/?" + strings.Repeat("a", 9<<10), nil, 414},
		"many methods":       {"https://api.good.test/", http.Header{"X-Method": {"A,B,C,D,E,F,G,H,I,J,K,L,M,N,O,P"}}, 400},
		"longest header":     {"https://api.good.test/", http.Header{"X-Arg": {strings.Repeat("a", 11<<10)}}, 403},
		"a token in the URL": {"https://api.good.test/ghp_" + strings.Repeat("a1", 20), nil, 403},
	} {
		if code, body := b.do("POST", c.url, "x", c.header); code != c.want {
			t.Errorf("%s: got %d %.200s, want %d", name, code, body, c.want)
		}
	}
	if q := b.people.questions(); len(q) != 2 || len(up.log()) != 0 {
		t.Errorf("the approval requests are %+v, want two; upstream got %+v, want nothing", q, up.log())
	}
	// Values that look equal after redaction are still different.
	patterns := w.newSandbox(askPolicy + "redact: {patterns: true}\n")
	patterns.people.answer = d.answer
	with := func(path, header string) int {
		code, _ := patterns.do("POST", "https://api.good.test/"+path, "x", http.Header{"X-Arg": {header}})
		return code
	}
	firstToken, secondToken := "ghp_"+strings.Repeat("a1", 20), "ghp_"+strings.Repeat("b2", 20)
	with(firstToken, firstToken)
	q := patterns.people.questions()[0]
	if strings.Contains(q.Facts["target"]+q.Facts["header_x-arg"], firstToken) {
		t.Errorf("the approval request displays a token: %v", q.Facts)
	}
	d.approve(q)
	if with(secondToken, firstToken) != 403 || with(firstToken, secondToken) != 403 || with(firstToken, firstToken) != 200 {
		t.Error("a grant does not cover exactly its own tokens")
	}
}

// The documentation lists the headers that a grant is not bound to.
func TestHarmlessHeadersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/decide-approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range harmless {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/how-to/decide-approvals.md does not list %s", name)
		}
	}
	for _, name := range harmless {
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("the header %s is not in its canonical form, so it is never found", name)
		}
	}
}

package proxy

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Finding S4: headers that change a request's effect were not part of a grant.
func TestFindingS4AGrantIsForTheSameHeaders(t *testing.T) {
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
		t.Fatalf("unasked: %d", code)
	}
	q := b.people.questions()[0]
	d.approve(q)
	for _, more := range [][]string{
		{"X-Amz-Target", "Ledger.DeleteTable"}, {"Soapaction", "urn:pay"}, {"Cookie", "account=evil"}, {"Private-Token", "evil"},
		{"X-HTTP-Method-Override", "POST"}, {"X-Original-URL", "/"}, {"Dropbox-Api-Arg", `{"path": "/evil"}`},
		{"X-Amz-Copy-Source", "/others/secret"}, {"Prefer", "respond-async"}, {"X-Api-Key", "evil"}, {"Forwarded", "host=evil"},
	} {
		if code := send(more...); code != 403 {
			t.Errorf("approved without it, sent with %s: %d", more[0], code)
		}
	}
	if n := len(up.log()); n != 0 {
		t.Fatalf("upstream saw %+v", up.log())
	}
	// Control: harmless headers may differ in the next try.
	if code := send("User-Agent", "two", "Traceparent", "00-2"); code != 200 {
		t.Errorf("the same request: %d", code)
	}
	// People see everything that they approve, but no credentials.
	if got := q.Facts["header_x-amz-target"]; got != "Ledger.GetItem" {
		t.Errorf("the target is shown as %q of %v", got, q.Facts)
	}
	for name, text := range q.Facts {
		if text == "mine" || text == "account=mine" {
			t.Errorf("%s shows a credential", name)
		}
	}
}

// Finding S4: of the ways to override the method or path, only three were known.
func TestFindingS4OverridesAreDecidedByTheirMethod(t *testing.T) {
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
		"a header":                 {items, http.Header{"X-Http-Method-Override": {"DELETE"}}},
		"a header with _":          {items, http.Header{"X_http_method_override": {"DELETE"}}},
		"another header":           {items, http.Header{"X-Method": {"DELETE"}}},
		"a second value":           {items, http.Header{"X-Http-Method": {"GET, DELETE"}}},
		"the query":                {items + "?_method=DELETE", nil},
		"the query, escaped":       {items + "?%5Fmethod=%44ELETE", nil},
		"the query, by the header": {items + "?x-http-method-override=delete", nil},
		"another path":             {items, http.Header{"X-Original-Url": {"/admin"}}},
		"another path with _":      {items, http.Header{"X_rewrite_url": {"/admin?x=1"}}},
		"a path that is none":      {items, http.Header{"X-Original-Url": {"/items/../admin"}}},
		"another URL":              {items, http.Header{"X-Rewrite-Url": {"https://api.good.test/admin"}}},
	} {
		for _, method := range []string{"GET", "POST"} {
			if code, body := b.do(method, c.url, "", c.header); code != 403 && code != 400 {
				t.Errorf("%s, %s: %d %.100s", name, method, code, body)
			}
		}
	}
	if n := len(up.log()); n != 0 {
		t.Errorf("upstream saw %+v", up.log())
	}
	for name, c := range map[string]struct {
		url    string
		header http.Header
	}{
		"nothing else":    {items + "?method=DELETE&_methods=DELETE", nil},
		"what is allowed": {items, http.Header{"X-Http-Method-Override": {"GET"}, "X-Original-Url": {"/items/2?x=1"}}},
	} {
		if code, _ := b.do("POST", c.url, "", c.header); code != 200 {
			t.Errorf("the control, %s: %d", name, code)
		}
	}
}

// Finding S4: a secret that is bound to reads of some paths was set on a request whose headers make
// it another one.
func TestFindingS4ASecretIsNotForAnotherRequest(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(boundHost, withTokenForReads)
	auth := func(url string, h http.Header) string {
		t.Helper()
		before := len(up.log())
		if code, body := b.do("GET", url, "", h); code != 200 && code != 403 && code != 400 {
			t.Fatalf("%d %s", code, body)
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
			t.Errorf("%s carried the value", name)
		}
	}
	if got := auth(good+"?_method=DELETE", nil); got != "" {
		t.Error("a deletion by query carried the value")
	}
	if auth(good, nil) == "" || auth(good, http.Header{"X-Http-Method-Override": {"GET"}, "X-Original-Url": {"/v1/y"}}) == "" {
		t.Error("the control carried none")
	}
}

// Finding S4: a request that cannot be shown in full is refused without asking. Otherwise a grant
// would cover parts that no person has seen.
func TestFindingS4RequestsThatCannotBeShownAreRefused(t *testing.T) {
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
		"what can be shown":  {"https://api.good.test/", http.Header{"X-Arg": {strings.Repeat("a", 11<<10)}}, 403},
		"a token in the URL": {"https://api.good.test/ghp_" + strings.Repeat("a1", 20), nil, 403},
	} {
		if code, body := b.do("POST", c.url, "x", c.header); code != c.want {
			t.Errorf("%s: %d %.200s", name, code, body)
		}
	}
	if q := b.people.questions(); len(q) != 2 || len(up.log()) != 0 {
		t.Errorf("asked %+v, upstream saw %+v", q, up.log())
	}
	// Values that look equal after redaction are still different.
	patterns := w.newSandbox(askPolicy + "redact: {patterns: true}\n")
	patterns.people.answer = d.answer
	with := func(path, header string) int {
		code, _ := patterns.do("POST", "https://api.good.test/"+path, "x", http.Header{"X-Arg": {header}})
		return code
	}
	one, two := "ghp_"+strings.Repeat("a1", 20), "ghp_"+strings.Repeat("b2", 20)
	with(one, one)
	q := patterns.people.questions()[0]
	if strings.Contains(q.Facts["target"]+q.Facts["header_x-arg"], one) {
		t.Errorf("the question shows %v", q.Facts)
	}
	d.approve(q)
	if with(two, one) != 403 || with(one, two) != 403 || with(one, one) != 200 {
		t.Error("a grant is for another token")
	}
}

// The documents name the headers that a grant is not bound to.
func TestHarmlessHeadersAreInTheDocuments(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/decide-approvals.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range harmless {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/how-to/decide-approvals.md does not name %s", name)
		}
	}
	for _, name := range harmless {
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is never looked up", name)
		}
	}
}

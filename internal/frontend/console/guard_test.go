package console_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// TestRequestsWithoutSessionAreRejected sends requests without a cookie, with a wrong one, with the
// cookie of a session that was signed out, and with a used link (P42).
func TestRequestsWithoutSessionAreRejected(t *testing.T) {
	s := newSite(t)
	token := s.token(session.Admin)
	signIn := func() siteResponse {
		return s.send(siteRequest{method: "POST", path: "/console/api/session", body: `{"token":"` + token + `"}`})
	}
	g := signIn()
	c, err := http.ParseSetCookie(g.header.Get("Set-Cookie"))
	if g.status != 200 || err != nil {
		t.Fatalf("sign-in: got %d %s", g.status, g.body)
	}
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/console/" || c.Secure || c.MaxAge < 11*3600 || c.Domain != "" {
		t.Errorf("the cookie is %+v", c)
	}
	var v struct {
		ID, Scope, Name, Version, Domain string
		Engine                           struct{ Name, Boundary string }
	}
	if err := json.Unmarshal([]byte(g.body), &v); err != nil || v.Scope != "admin" || v.Name != "Ann" || v.Version != "test" || v.Engine.Name != "fake" {
		t.Errorf("the session: got %s", g.body)
	}
	if strings.Contains(g.body, c.Value) || strings.Contains(g.body, token) {
		t.Error("the response contains the cookie or the token")
	}
	if g := signIn(); g.status != 401 || g.code() != "token_invalid" || g.header.Get("Set-Cookie") != "" {
		t.Errorf("a used link: %d %s", g.status, g.body)
	}
	wrong := strings.Repeat("A", len(c.Value))
	for name, cookie := range map[string]string{"none": "", "wrong": wrong, "the token": token, "the ID": v.ID, "short": "x"} {
		for _, path := range []string{"/v1/sandboxes", "/v1/version", "/session", "/doctor", "/sessions", "/events", "/policy/schema", "/v1/no-such-route"} {
			if g := s.send(siteRequest{path: "/console/api" + path, cookie: cookie}); g.status != 401 {
				t.Errorf("%s cookie: %s: %d %s", name, path, g.status, g.body)
			}
		}
	}
	// Control: the right cookie works, also beside other cookies of the same name. A preview on a
	// subdomain of the console can set as many cookies as a browser stores, and must not be able to
	// sign a user out with them.
	manyCookies := strings.Repeat(wrong+"; crannog_console=", 180)
	for _, cookie := range []string{c.Value, wrong + "; crannog_console=" + c.Value, manyCookies + c.Value} {
		if g := s.send(siteRequest{path: "/console/api/v1/sandboxes", cookie: cookie}); g.status != 200 {
			t.Errorf("the right cookie: %d %s", g.status, g.body)
		}
	}
	if g := s.send(siteRequest{method: "DELETE", path: "/console/api/session", cookie: c.Value}); g.status != 204 || !strings.Contains(g.header.Get("Set-Cookie"), "Max-Age=0") {
		t.Errorf("sign-out: %d %v", g.status, g.header)
	}
	if g := s.send(siteRequest{path: "/console/api/v1/sandboxes", cookie: c.Value}); g.status != 401 {
		t.Errorf("after sign-out: %d", g.status)
	}
	list := s.auditEntries(audit.ConsoleInvited, audit.ConsoleSignedIn, audit.ConsoleSignedOut, audit.Action)
	s.wantEntry(list, "console.signed_in console:"+v.ID+" admin")
	s.wantEntry(list, "console.signed_out console:"+v.ID+" admin signed_out")
	s.wantEntry(list, "action anonymous POST /console/api/session token_invalid")
}

// TestCookieWorksOnlyForConsole checks that the cookie gives access to nothing outside of the
// console (P42).
func TestCookieWorksOnlyForConsole(t *testing.T) {
	s := newSite(t)
	cookie := s.sign(session.Admin)
	if g := s.send(siteRequest{path: "/console/api/v1/keys", cookie: cookie}); g.status != 200 {
		t.Fatalf("inside: %d %s", g.status, g.body)
	}
	for _, q := range []siteRequest{
		{path: "/v1/sandboxes"}, {path: "/v1/keys"}, {method: "POST", path: "/v1/keys", body: `{"name":"x"}`}, {path: "/sandboxes"}, {path: "/v2/sandboxes"}, {path: "/mcp"},
	} {
		q.cookie = cookie
		if g := s.send(q); g.status == 200 || g.status == 201 {
			t.Errorf("%s: %d %s", q.path, g.status, g.body)
		}
	}
}

// TestCrossSiteRequestsAreRejected checks that a page of another origin cannot act in the console,
// although the browser adds the cookie to its requests (P42).
func TestCrossSiteRequestsAreRejected(t *testing.T) {
	s := newSite(t)
	cookie, sandboxID := s.sign(session.Admin), s.sandbox()
	own := "http://" + s.addr
	stop := siteRequest{method: "POST", path: "/console/api/v1/sandboxes/" + sandboxID + "/timeout", body: `{"seconds":600}`, cookie: cookie}
	attach := siteRequest{path: "/console/api/sandboxes/" + sandboxID + "/terminals/1/attach", cookie: cookie}
	cell := siteRequest{method: "POST", path: "/console/api/sandboxes/" + sandboxID + "/cells?path=/plain", body: "{}", cookie: cookie}
	read := siteRequest{path: "/console/api/v1/sandboxes", cookie: cookie}
	h := func(pairs ...string) http.Header {
		out := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			out.Add(pairs[i], pairs[i+1])
		}
		return out
	}
	ws := func(pairs ...string) http.Header {
		return h(append(pairs, "Connection", "Upgrade", "Upgrade", "websocket", "Sec-Websocket-Version", "13", "Sec-Websocket-Key", "x3JJHMbDL1EzLkh9GBhXDw==")...)
	}
	for name, c := range map[string]struct {
		q    siteRequest
		with http.Header
		want int
	}{
		"own page":                {stop, h("Origin", own, "Sec-Fetch-Site", "same-origin"), 200},
		"own page, old browser":   {stop, h("Origin", own), 200},
		"not a browser":           {stop, h(), 200},
		"other site":              {stop, h("Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"), 403},
		"other site, old browser": {stop, h("Origin", "https://evil.example"), 403},
		"a preview":               {stop, h("Origin", "http://8080-"+sandboxID+".localhost", "Sec-Fetch-Site", "same-site"), 403},
		"origin null":             {stop, h("Origin", "null"), 403},
		"same host, other port":   {stop, h("Origin", "http://127.0.0.1:1"), 403},
		"two origins":             {stop, h("Origin", own, "Origin", "https://evil.example"), 403},
		"file origin":             {stop, h("Origin", "file://"+s.addr), 403},
		"read by another site":    {read, h("Sec-Fetch-Site", "cross-site"), 403},
		"read by a preview":       {read, h("Sec-Fetch-Site", "same-site"), 403},
		"read by own page":        {read, h("Sec-Fetch-Site", "same-origin"), 200},
		"plain text form":         {stop, h("Content-Type", "text/plain"), 400},
		"URL-encoded form":        {stop, h("Content-Type", "application/x-www-form-urlencoded"), 400},
		"JSON cell":               {cell, h(), 200},
		"plain text cell":         {cell, h("Content-Type", "text/plain"), 400},
		"multipart cell":          {cell, h("Content-Type", "multipart/form-data; boundary=x"), 400},
		"cell without a type":     {cell, h("Content-Type", ""), 400},
		"own terminal":            {attach, ws("Origin", own, "Sec-Fetch-Site", "same-origin"), 200},
		"terminal, other site":    {attach, ws("Origin", "https://evil.example"), 403},
		"terminal, no origin":     {attach, ws(), 403},
		"terminal, a preview":     {attach, ws("Origin", "http://8080-x.localhost"), 403},
	} {
		c.q.header = c.with
		if g := s.send(c.q); g.status != c.want || c.want == 403 && g.code() != "cross_origin" {
			t.Errorf("%s: %d %s", name, g.status, g.body)
		}
	}
	// A link on another site leads to the page, but signs no user in or out.
	if g := s.send(siteRequest{path: "/console/", header: h("Sec-Fetch-Site", "cross-site")}); g.status != 200 {
		t.Errorf("a link on another site: got status %d, want 200", g.status)
	}
	otherSite := siteRequest{method: "POST", path: "/console/api/session", body: `{"token":"` + s.token(session.Viewer) + `"}`, header: h("Origin", "https://evil.example")}
	if g := s.send(otherSite); g.status != 403 || g.header.Get("Set-Cookie") != "" {
		t.Errorf("sign-in by another site: got status %d, want 403", g.status)
	}
	otherSite.header = nil
	if g := s.send(otherSite); g.status != 200 {
		t.Errorf("the same link without an origin: got %d %s, want 200", g.status, g.body)
	}
	s.wantEntry(s.auditEntries(audit.Action), "action anonymous GET /console/api/v1/sandboxes cross_origin")
}

// TestUnknownHostNamesAreRejected checks that a name of another site that resolves to this address
// (DNS rebinding) is rejected. Otherwise its pages would have the console's origin (P42).
func TestUnknownHostNamesAreRejected(t *testing.T) {
	s := newSite(t)
	cookie := s.sign(session.Admin)
	_, port, _ := strings.Cut(s.addr, ":")
	for host, ok := range map[string]bool{
		s.addr: true, "localhost:" + port: true, "LOCALHOST": true, "localhost.": true, "[::1]:" + port: true, "127.0.0.1": true, "sbx.example.com": true,
		"console.example.net:443": true,
		"evil.example":            false, "evil.example:" + port: false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "evil-localhost": false,
		"10.0.0.1": false, "0.0.0.0:" + port: false, "127.0.0.1.nip.io": false, "x.console.example.net": false, "2130706433": false, "[::ffff:10.0.0.1]": false,
	} {
		for _, path := range []string{"/console/", "/console/api/v1/sandboxes"} {
			g := s.send(siteRequest{path: path, cookie: cookie, host: host})
			if want := map[bool]int{true: 200, false: 403}[ok]; g.status != want || !ok && g.code() != "host_not_allowed" {
				t.Errorf("%s as %s: %d %s", path, host, g.status, g.body)
			}
		}
	}
	s.wantEntry(s.auditEntries(audit.Action), "action anonymous GET /console/ host_not_allowed")
}

// TestOnlyLocalUserCreatesLinks checks that sessions and API keys cannot create sign-in links
// (P42).
func TestOnlyLocalUserCreatesLinks(t *testing.T) {
	s := newSite(t)
	secret, _, err := s.d.Keys.Create(t.Context(), "ci")
	if err != nil {
		t.Fatal(err)
	}
	create := func(with string, h http.Header, socket bool) int {
		return s.send(siteRequest{method: "POST", path: "/console/api/tokens", body: `{"scope":"admin"}`, cookie: with, header: h, socket: socket}).status
	}
	admin := s.sign(session.Admin)
	if got := create(admin, nil, false); got != 401 {
		t.Errorf("a session creates a link: got status %d, want 401", got)
	}
	if got := create("", http.Header{"X-Api-Key": {secret}, "Content-Type": {"application/json"}}, false); got != 403 {
		t.Errorf("an API key creates a link: got status %d, want 403", got)
	}
	if got := create("", nil, false); got != 401 {
		t.Errorf("a caller without a session creates a link: got status %d, want 401", got)
	}
	if got := create("", nil, true); got != 201 {
		t.Errorf("the machine's user creates a link: got status %d, want 201", got)
	}
	for _, body := range []string{`{}`, `{"scope":"root"}`, `{"scope":"admin","session_seconds":-1}`, `{"scope":"admin","session_seconds":9223372036854775807}`, `{"scope":"admin","x":1}`, `[]`, `{"scope":"admin"}{}`} {
		if g := s.send(siteRequest{method: "POST", path: "/console/api/tokens", body: body, socket: true}); g.status != 400 {
			t.Errorf("%s: %d %s", body, g.status, g.body)
		}
	}
}

// TestSessionsSurviveARestart opens the console twice on the same directory.
func TestSessionsSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	s := openSite(t, dir, page)
	cookie := s.sign(session.Operator)
	s.stop()
	s = openSite(t, dir, page)
	if g := s.send(siteRequest{path: "/console/api/session", cookie: cookie}); g.status != 200 || !strings.Contains(g.body, `"scope":"operator"`) {
		t.Errorf("GET /console/api/session: got %d %s", g.status, g.body)
	}
}

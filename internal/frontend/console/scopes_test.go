package console_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/frontend/console"
	"github.com/crannog/crannog/internal/frontend/console/session"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestRoutesNeedTheirScope checks that a viewer reads, an operator works with sandboxes, and a
// route in no table needs an admin (P42).
func TestRoutesNeedTheirScope(t *testing.T) {
	s := newSite(t)
	sandboxID := s.sandbox()
	at := "/console/api/v1/sandboxes/" + sandboxID
	inside := "/console/api/sandboxes/" + sandboxID
	cookies := map[session.Scope]string{}
	for scope := session.Viewer; scope <= session.Admin; scope++ {
		cookies[scope] = s.sign(scope)
	}
	for _, c := range []struct {
		need         session.Scope
		method, path string
		body         string
	}{
		{session.Viewer, "GET", "/console/api/v1/sandboxes", ""},
		{session.Viewer, "GET", at, ""},
		{session.Viewer, "GET", at + "/metrics", ""},
		{session.Viewer, "GET", "/console/api/v1/approvals", ""},
		{session.Viewer, "GET", "/console/api/v1/record", ""},
		{session.Viewer, "POST", "/console/api/v1/record/verify", ""},
		{session.Viewer, "GET", "/console/api/doctor", ""},
		{session.Viewer, "GET", "/console/api/templates", ""},
		{session.Viewer, "GET", "/console/api/events", ""},
		{session.Viewer, "PUT", "/console/api/events/x", "{}"},
		{session.Viewer, "GET", inside + "/files", ""},
		{session.Viewer, "GET", inside + "/processes", ""},
		{session.Viewer, "GET", inside + "/policy/versions", ""},
		{session.Operator, "POST", at + "/timeout", `{"seconds":600}`},
		{session.Operator, "POST", at + "/exec", `{}`},
		{session.Operator, "POST", "/console/api/v1/sandboxes", `{"x":1}`},
		{session.Operator, "PUT", at + "/access", `{}`},
		{session.Operator, "POST", "/console/api/v1/approvals/a/approve", "{}"},
		{session.Viewer, "GET", at + "/changes", ""},
		{session.Operator, "GET", at + "/export", ""},
		{session.Operator, "GET", inside + "/file?path=/plain", ""},
		{session.Operator, "PUT", inside + "/file?path=/plain", "x"},
		{session.Operator, "DELETE", inside + "/processes/1", ""},
		{session.Operator, "POST", inside + "/cells", "{}"},
		{session.Operator, "POST", inside + "/terminals", "{}"},
		{session.Admin, "GET", "/console/api/v1/keys", ""},
		{session.Admin, "POST", "/console/api/v1/keys", `{"name":"k"}`},
		{session.Admin, "GET", "/console/api/v1/secrets", ""},
		{session.Admin, "POST", "/console/api/v1/prune", ""},
		{session.Admin, "GET", "/console/api/v1/record/export", ""},
		{session.Admin, "GET", "/console/api/v1/package-cache", ""},
		{session.Admin, "POST", "/console/api/v1/package-cache/prune", "{}"},
		{session.Admin, "POST", "/console/api/v1/package-cache/verify", ""},
		{session.Admin, "GET", "/console/api/v1/no-such-route", ""},
		{session.Admin, "PATCH", at, "{}"},
		{session.Admin, "GET", "/console/api/settings", ""},
		{session.Admin, "GET", "/console/api/sessions", ""},
		{session.Admin, "DELETE", "/console/api/sessions/c1", ""},
	} {
		for scope, cookie := range cookies {
			g := s.send(siteRequest{method: c.method, path: c.path, body: c.body, cookie: cookie})
			if small := g.status == 403 && g.code() == "scope_too_small"; small == scope.Has(c.need) || g.status == 401 {
				t.Errorf("%s %s as %s: %d %s", c.method, c.path, scope, g.status, g.body)
			}
		}
	}
	for _, path := range []string{"/console/api/nothing", "/console/api/", "/console/api", "/console/api/v1", "/console/api//v1/keys", "/console/api/v1/../v1/keys", "/console/api/v1/%2e%2e/v1/keys", "/console/api/sandboxes/x"} {
		if g := s.send(siteRequest{path: path, cookie: cookies[session.Admin]}); g.status != 404 {
			t.Errorf("%s: %d %s", path, g.status, g.body)
		}
	}
	var viewer string
	for _, one := range s.auditEntries(audit.Action) {
		if strings.HasSuffix(one, "POST "+at+"/timeout scope_too_small") {
			viewer = one
		}
	}
	if !strings.HasPrefix(viewer, "action console:c") {
		t.Errorf("got audit entry %q of the viewer's attempt, want one of its session", viewer)
	}
	s.wantEntry(s.auditEntries(audit.Action), strings.Split(viewer, " POST")[0]+" POST "+at+"/timeout scope_too_small")
}

// TestViewersGetNoFileContent checks that a viewer sees which files have changed, but not their
// content (P42).
func TestViewersGetNoFileContent(t *testing.T) {
	s := newSite(t)
	at := "/v1/sandboxes/" + s.sandbox() + "/changes"
	for scope, want := range map[session.Scope]string{session.Viewer: at + "?since=start", session.Operator: at + "?since=start&text=true&%74ext=1"} {
		s.send(siteRequest{path: "/console/api" + at + "?since=start&text=true&%74ext=1", cookie: s.sign(scope)})
		if got := <-s.ownAPIPaths; got != want {
			t.Errorf("%s: %s", scope, got)
		}
	}
}

// TestEscapedPathsCannotBypassScopes checks that escapes in a path cannot lead to another route
// than the one whose scope was checked (P42).
func TestEscapedPathsCannotBypassScopes(t *testing.T) {
	s := newSite(t)
	sandboxID, viewer := s.sandbox(), s.sign(session.Viewer)
	for _, rest := range []string{"export", "changes?text=true"} {
		for _, path := range []string{
			"/console/%61pi/v1/sandboxes/" + sandboxID + "%2F" + rest, "/consol%65/api/v1/sandboxes/" + sandboxID + "%2f" + rest,
			"/console/api/v1/sandboxes/" + sandboxID + "%2F" + rest, "/console/api/%76%31/sandboxes/" + sandboxID + "%2F" + rest,
		} {
			if g := s.send(siteRequest{path: path, cookie: viewer}); g.status != http.StatusNotFound {
				t.Errorf("%s: %d %s", path, g.status, g.body)
			}
			select {
			case acted := <-s.ownAPIPaths:
				t.Errorf("%s was passed to the API as %s", path, acted)
			default:
			}
		}
	}
	if g := s.send(siteRequest{path: "/console/api/v1/sandboxes/%" + strconv.FormatInt(int64(sandboxID[0]), 16) + sandboxID[1:], cookie: viewer}); g.status != http.StatusOK || !strings.Contains(g.body, sandboxID) {
		t.Errorf("an ID with an escape: %d %s", g.status, g.body)
	}
}

// TestEveryOperationHasAScope checks that every operation of the API has a scope, and that
// operations that change something need at least an operator.
func TestEveryOperationHasAScope(t *testing.T) {
	data, err := v1.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	scopes := console.APIScopes()
	adminOnly := func(path string) bool {
		for _, prefix := range []string{"/v1/keys", "/v1/secrets", "/v1/prune", "/v1/record/export", "/v1/audit/export", "/v1/images", "/v1/builds", "/v1/volumes", "/v1/package-cache"} {
			if strings.HasPrefix(path, prefix) {
				return true
			}
		}
		return false
	}
	seen := 0
	for path, methods := range doc.Paths {
		for method := range methods {
			route := strings.ToUpper(method) + " " + path
			scope, there := scopes[route]
			seen++
			switch reads := method == "get" || route == "POST /v1/record/verify" || route == "POST /v1/audit/verify"; {
			case adminOnly(path):
				if there {
					t.Errorf("%s must need an admin", route)
				}
			case !there:
				t.Errorf("%s has no scope: is it for viewers, operators, or admins only?", route)
			case !reads && scope < session.Operator:
				t.Errorf("%s changes something, but needs only the scope %s", route, scope)
			}
			delete(scopes, route)
		}
	}
	for route := range scopes {
		t.Errorf("the table has a scope for %s, which is not an operation", route)
	}
	if seen < 40 {
		t.Errorf("checked %d operations, want at least 40", seen)
	}
}

// TestResponsesToPagesHaveNoTokens checks that no page gets a token that gives access to a sandbox
// without the server (P42).
func TestResponsesToPagesHaveNoTokens(t *testing.T) {
	s := newSite(t)
	cookie := s.sign(session.Admin)
	g := s.send(siteRequest{method: "POST", path: "/console/api/v1/sandboxes", body: `{"private_ports":true}`, cookie: cookie})
	var sb struct{ ID, State string }
	if err := json.Unmarshal([]byte(g.body), &sb); err != nil || g.status != 201 {
		t.Fatalf("POST /console/api/v1/sandboxes: got %d %s", g.status, g.body)
	}
	at := "/console/api/v1/sandboxes/" + sb.ID
	answers := []siteResponse{g, s.send(siteRequest{path: at, cookie: cookie}), s.send(siteRequest{path: "/console/api/v1/sandboxes", cookie: cookie}),
		s.send(siteRequest{method: "POST", path: at + "/timeout", body: `{"seconds":600}`, cookie: cookie}), s.send(siteRequest{method: "PUT", path: at + "/access", body: `{}`, cookie: cookie})}
	for i, a := range answers {
		if strings.Contains(a.body, "_token") {
			t.Errorf("response %d contains a token: %s", i, a.body)
		}
	}
	if g := s.send(siteRequest{path: "/v1/sandboxes/" + sb.ID, socket: true}); !strings.Contains(g.body, "access_token") || !strings.Contains(g.body, "traffic_token") {
		t.Errorf("the machine's user got no tokens: %s", g.body)
	}
	s.wantEntry(s.auditEntries(audit.Action), strings.Join([]string{"action", actorIn(t, s, cookie), "create ok"}, " "))
}

func actorIn(t *testing.T, s *site, cookie string) string {
	t.Helper()
	var v struct{ ID string }
	if err := json.Unmarshal([]byte(s.send(siteRequest{path: "/console/api/session", cookie: cookie}).body), &v); err != nil {
		t.Fatal(err)
	}
	return "console:" + v.ID
}

// TestRevokedSessionEndsItsStreams revokes a session that has an open stream (P42).
func TestRevokedSessionEndsItsStreams(t *testing.T) {
	s := newSite(t)
	admin, operator := s.sign(session.Admin), s.sign(session.Operator)
	sandboxID := s.sandbox()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+"/console/api/sandboxes/"+sandboxID+"/file?path=/hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.AddCookie(&http.Cookie{Name: console.CookieName, Value: operator})
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	caller := <-s.inside.called
	var list struct {
		Sessions []struct {
			ID, Scope string
			Mine      bool
		}
	}
	if g := s.send(siteRequest{path: "/console/api/sessions", cookie: admin}); json.Unmarshal([]byte(g.body), &list) != nil || len(list.Sessions) != 2 || !list.Sessions[0].Mine || list.Sessions[1].Mine {
		t.Errorf("GET /console/api/sessions: got %s", g.body)
	}
	if g := s.send(siteRequest{path: "/console/api/sessions", socket: true}); g.status != 200 {
		t.Errorf("the machine's user: %d %s", g.status, g.body)
	}
	if g := s.send(siteRequest{method: "DELETE", path: "/console/api/sessions/" + caller.ID, cookie: admin}); g.status != 204 {
		t.Fatalf("DELETE /console/api/sessions/*: got %d %s", g.status, g.body)
	}
	ended := make(chan struct{})
	go func() { _, _ = bufio.NewReader(res.Body).ReadByte(); close(ended) }()
	select {
	case <-ended:
	case <-hosttest.Late():
		t.Error("the stream of a revoked session is still open")
	}
	if g := s.send(siteRequest{path: "/console/api/session", cookie: operator}); g.status != 401 {
		t.Errorf("GET /console/api/session: got %d", g.status)
	}
	s.wantEntry(s.auditEntries(audit.ConsoleSignedOut), "console.signed_out "+actorIn(t, s, admin)+" operator revoked")
}

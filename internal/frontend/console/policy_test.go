package console_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/frontend/console/session"
)

// TestPolicyEditorRoutes checks the schema, the presets, lint, explain and the versions of a
// policy.
func TestPolicyEditorRoutes(t *testing.T) {
	s := newSite(t)
	viewer, admin := s.sign(session.Viewer), s.sign(session.Admin)
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if g := s.send(siteRequest{path: "/console/api/policy/schema", cookie: viewer}); json.Unmarshal([]byte(g.body), &schema) != nil || schema.Properties["network"] == nil {
		t.Errorf("GET /console/api/policy/schema: got %d %.200s", g.status, g.body)
	}
	var presets []struct{ Name, Document string }
	if g := s.send(siteRequest{path: "/console/api/policy/presets", cookie: viewer}); json.Unmarshal([]byte(g.body), &presets) != nil || len(presets) != 7 {
		t.Errorf("GET /console/api/policy/presets: got %d %.200s", g.status, g.body)
	}
	post := func(path string, body any) string {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		return s.send(siteRequest{method: "POST", path: "/console/api/policy/" + path, body: string(text), cookie: viewer}).body
	}
	for _, p := range presets {
		if got := post("lint", map[string]string{"document": p.Document}); !strings.HasPrefix(got, `{"ok":true`) {
			t.Errorf("%s: %s", p.Name, got)
		}
	}
	bad := "policy: v1\nnetwork:\n  unlisted: maybe\n  hosts:\n    - hst: a\n"
	if got := post("lint", map[string]string{"document": bad}); !strings.HasPrefix(got, `{"ok":false,"problems":[{"line":5,"column":5,`) || !strings.Contains(got, `"severity":"error"`) {
		t.Errorf("lint: got %v", got)
	}
	doc := "policy: v1\nnetwork:\n  unlisted: deny\n  hosts:\n    - host: api.example.com\n      rules: [{id: read, methods: [GET], do: allow}]\n"
	for _, c := range [][3]string{
		{"GET", "https://api.example.com/x", `{"effect":"allow","rule":`}, {"POST", "https://api.example.com/x", `{"effect":"deny","rule":`},
		{"GET", "https://other.example.com/", `{"effect":"deny","rule":"network.unlisted"`}, {"CONNECT", "169.254.169.254:80", `{"effect":"deny","rule":`},
	} {
		if got := post("explain", map[string]string{"document": doc, "method": c[0], "url": c[1]}); !strings.HasPrefix(got, c[2]) {
			t.Errorf("%s %s: %s", c[0], c[1], got)
		}
	}
	g := s.send(siteRequest{method: "POST", path: "/console/api/v1/sandboxes", body: `{"network":{"policy":` + quote(doc) + `}}`, cookie: admin})
	var sb struct{ ID string }
	if err := json.Unmarshal([]byte(g.body), &sb); err != nil || g.status != 201 {
		// Without a gateway there are no policies to enforce on this engine.
		sb.ID = s.sandbox()
	}
	if got := post("explain", map[string]string{"sandbox": sb.ID, "method": "GET", "url": "https://api.example.com/x"}); !strings.HasPrefix(got, `{"effect":`) {
		t.Errorf("explain: got %v", got)
	}
	for _, body := range []map[string]string{{"method": "GET", "url": "a"}, {"document": doc, "sandbox": sb.ID, "method": "GET", "url": "a"}, {"document": doc, "method": "GET", "url": "ftp://a/"}, {"document": bad, "method": "GET", "url": "a"}} {
		if got := post("explain", body); !strings.Contains(got, `"kind":"invalid"`) {
			t.Errorf("%v: %s", body, got)
		}
	}
	var versions []struct {
		Digest, Actor, Document string
		Seq                     int64
	}
	if g := s.send(siteRequest{path: "/console/api/sandboxes/" + sb.ID + "/policy/versions", cookie: viewer}); json.Unmarshal([]byte(g.body), &versions) != nil || len(versions) != 1 || versions[0].Digest == "" || versions[0].Document == "" {
		t.Errorf("GET /console/api/sandboxes/*/policy/versions: got %d %s", g.status, g.body)
	}
	// Each replaced policy stays readable, so that any two can be compared.
	for _, level := range []string{"light", "strict"} {
		if g := s.send(siteRequest{method: "PUT", path: "/console/api/v1/sandboxes/" + sb.ID + "/access", cookie: admin, body: `{"level":"` + level + `"}`}); g.status != 200 {
			t.Fatalf("PUT /console/api/v1/sandboxes/*/access: got %d %s", g.status, g.body)
		}
	}
	if g := s.send(siteRequest{path: "/console/api/sandboxes/" + sb.ID + "/policy/versions", cookie: viewer}); json.Unmarshal([]byte(g.body), &versions) != nil || len(versions) != 3 {
		t.Fatalf("GET /console/api/sandboxes/*/policy/versions: got %d %s", g.status, g.body)
	}
	for i, level := range []string{"strict", "light", "standard"} {
		if !strings.Contains(versions[i].Document, "level: "+level) {
			t.Errorf("version %d: got %+v, want level %s", i, versions[i], level)
		}
	}
	if g := s.send(siteRequest{path: "/console/api/sandboxes/none/policy/versions", cookie: viewer}); g.status != 404 {
		t.Errorf("GET /console/api/sandboxes/none/policy/versions: got %d %s", g.status, g.body)
	}
}

func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// TestDoctorResultIsCached checks that several page loads run the checks only once.
func TestDoctorResultIsCached(t *testing.T) {
	s := newSite(t)
	viewer := s.sign(session.Viewer)
	for range 5 {
		if g := s.send(siteRequest{path: "/console/api/doctor", cookie: viewer}); g.status != 200 || !strings.Contains(g.body, `"findings":["kernel"]`) {
			t.Errorf("GET /console/api/doctor: got %d %s", g.status, g.body)
		}
	}
	if s.machine.checks != 1 {
		t.Errorf("the checks ran %d times, want once", s.machine.checks)
	}
	if g := s.send(siteRequest{path: "/console/api/templates", cookie: viewer}); !strings.Contains(g.body, `"name":"base"`) {
		t.Errorf("GET /console/api/templates: got %v", g.body)
	}
	if g := s.send(siteRequest{path: "/console/api/settings", cookie: s.sign(session.Admin)}); !strings.Contains(g.body, `"name":"listen"`) {
		t.Errorf("GET /console/api/settings: got %v", g.body)
	}
}

// TestInvalidSignInsAreLimited checks sign-in requests with invalid bodies, and that guesses from
// one address are limited (P42).
func TestInvalidSignInsAreLimited(t *testing.T) {
	s := newSite(t)
	for body, want := range map[string]int{
		`{"token":"x"}`: 401, `{"token":""}`: 401, `{}`: 401, `{"token":1}`: 400, `{"token":"x","y":1}`: 400, `null`: 401, `[`: 400, `{"token":"x"} {}`: 400,
		`{"token":"` + strings.Repeat("A", 8<<10) + `"}`: 429, // more than is read
	} {
		if g := s.send(siteRequest{method: "POST", path: "/console/api/session", body: body}); g.status != want && g.status != 413 {
			t.Errorf("%.40s: %d %s", body, g.status, g.body)
		}
	}
	for range 10 {
		s.send(siteRequest{method: "POST", path: "/console/api/session", body: `{"token":"x"}`})
	}
	if g := s.send(siteRequest{method: "POST", path: "/console/api/session", body: `{"token":"x"}`}); g.status != 429 || g.code() != "too_many_tries" {
		t.Errorf("sign-in after many failures: got %d %s, want 429", g.status, g.body)
	}
}

// TestDoctorContinuesAfterClientLeaves checks that the checks are not canceled when their client
// leaves. Otherwise other clients would get the cached result of canceled checks.
func TestDoctorContinuesAfterClientLeaves(t *testing.T) {
	s := newSite(t)
	first, second := s.sign(session.Viewer), s.sign(session.Viewer)
	left := make(chan struct{})
	s.machine.started, s.machine.left = make(chan struct{}), left
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.send(siteRequest{path: "/console/api/doctor", cookie: first})
	}()
	<-s.machine.started
	// The streams of the session are closed before this request is answered.
	if g := s.send(siteRequest{method: "DELETE", path: "/console/api/session", cookie: first}); g.status != 204 {
		t.Fatalf("DELETE /console/api/session: got %d %s", g.status, g.body)
	}
	close(left)
	<-answered
	if g := s.send(siteRequest{path: "/console/api/doctor", cookie: second}); g.status != 200 || !strings.Contains(g.body, `"findings":["kernel"]`) {
		t.Errorf("GET /console/api/doctor: got %d %s", g.status, g.body)
	}
}

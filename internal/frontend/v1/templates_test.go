package v1

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
)

// templateStore has one template, web, and records the requested changes.
type templateStore struct {
	request catalog.Request
	changes []string
}

func web() catalog.Template {
	return catalog.Template{
		ID: "t1", Name: "web", Aliases: []string{"www"}, Owner: "k1", Tags: map[string]int{"stable": 1},
		Versions: []catalog.Version{
			{Number: 1, Image: "debian:13", Digest: "sha256:1", Memory: "m1", Settings: catalog.Settings{
				User: "me", Env: map[string]string{"B": "secret", "A": "secret"}, Limits: sandbox.Limits{Limits: engine.Limits{MemoryBytes: 5}},
				Access: &sandbox.Access{Net: sandbox.NetNone}, Start: &sandbox.Start{Command: []string{"serve"}, Ready: []string{"check"}},
			}},
			{Number: 2, Note: "no memory", Maker: &sandbox.Process{PID: 1}},
		},
	}
}

func (s *templateStore) record(name, format string, args ...any) (catalog.Template, error) {
	if name != "web" {
		return catalog.Template{}, fault.Newf(fault.NotFound, "template_not_found", "there is no template %s", name)
	}
	s.changes = append(s.changes, fmt.Sprintf(format, args...))
	return web(), nil
}

func (s *templateStore) List(sandbox.Principal) ([]catalog.Template, error) {
	return []catalog.Template{web()}, nil
}

func (s *templateStore) Inspect(_ sandbox.Principal, name string) (catalog.Template, error) {
	return s.record(name, "inspect")
}

func (s *templateStore) Create(_ context.Context, _ sandbox.Principal, req catalog.Request) (catalog.Template, error) {
	s.request = req
	return s.record(req.Template, "create")
}

func (s *templateStore) Tag(_ context.Context, _ sandbox.Principal, name string, tags []string) (catalog.Template, error) {
	return s.record(name, "tag %v", tags)
}

func (s *templateStore) Alias(_ context.Context, _ sandbox.Principal, name string, aliases []string) (catalog.Template, error) {
	return s.record(name, "alias %v", aliases)
}

func (s *templateStore) Remove(_ context.Context, _ sandbox.Principal, name string, tagged bool) error {
	_, err := s.record(strings.TrimSuffix(name, ":old"), "remove %s %t", name, tagged)
	return err
}

func (s *templateStore) Commit(_ context.Context, _ sandbox.Principal, ref, name string) (library.Image, error) {
	s.changes = append(s.changes, "commit "+ref+" "+name)
	return debian(), nil
}

func newTemplates(t *testing.T) (*rig, *templateStore) {
	t.Helper()
	r, s := newRig(t), &templateStore{}
	r.deps.Templates, r.deps.Commits = s, s
	return r.with(r.deps), s
}

// A template is shown with the names of its variables, not with their values, which may be secrets.
func TestListTemplates(t *testing.T) {
	r, _ := newTemplates(t)
	w := r.raw("GET", "/v1/templates", "")
	if w.Code != 200 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("GET /v1/templates: got %d %s", w.Code, w.Body)
	}
	var got api.Template
	if code, _ := r.call("GET", "/v1/templates/inspect?template=web", "", &got); code != 200 || got.ID != "t1" || len(got.Versions) != 2 {
		t.Fatalf("GET /v1/templates/inspect: got %d %+v", code, got)
	}
	one, two := got.Versions[0], got.Versions[1]
	if !slices.Equal(one.EnvNames, []string{"A", "B"}) || !slices.Equal(one.Tags, []string{"stable"}) || !one.HasMemory || one.Making || one.Limits == nil || one.Limits.MemoryBytes != 5 ||
		one.Access == nil || one.Access.Net != "none" || one.ReadyTimeoutSeconds != sandbox.DefaultReadyTimeout.Seconds() {
		t.Errorf("first version: got %+v", one)
	}
	if two.HasMemory || !two.Making || two.Limits != nil || two.Access != nil || two.Note != "no memory" || two.ReadyTimeoutSeconds != 0 {
		t.Errorf("second version: got %+v", two)
	}
	if code, p := r.call("GET", "/v1/templates/inspect?template=none", "", nil); code != 404 || p.Code != "template_not_found" {
		t.Errorf("GET /v1/templates/inspect: got %d %+v", code, p)
	}
}

func TestCreateTemplate(t *testing.T) {
	r, s := newTemplates(t)
	body := `{"template":"web","image":"debian:13","user":"me","working_dir":"/w","env":{"A":"1"},"limits":{"memory_bytes":1073741824},"access":{"net":"none"},"start":["serve"],"ready":["check"],"ready_timeout_seconds":1.5}`
	if code, p := r.call("POST", "/v1/templates", body, nil); code != 201 {
		t.Fatalf("POST /v1/templates: got %d %+v", code, p)
	}
	q := s.request
	if q.Image != "debian:13" || q.User != "me" || q.Dir != "/w" || q.Env["A"] != "1" || q.Limits.MemoryBytes != 1<<30 || q.Access == nil || q.Access.Net != sandbox.NetNone ||
		q.Start == nil || !slices.Equal(q.Start.Command, []string{"serve"}) || q.Start.Timeout != 1500*time.Millisecond {
		t.Errorf("request: got %+v", q)
	}
	if code, _ := r.call("POST", "/v1/templates", `{"template":"web","image":"i"}`, nil); code != 201 || s.request.Access != nil || s.request.Start != nil {
		t.Errorf("the defaults: %d %+v", code, s.request)
	}
	for _, bad := range []string{`{"image":"i"}`, `{"template":"web"}`, `{"template":"web","image":"i","access":{"net":"x"}}`, `{"template":"web","image":"i","ready_timeout_seconds":601}`, `{"template":"none","image":"i"}`} {
		if code, _ := r.call("POST", "/v1/templates", bad, nil); code < 400 || code >= 500 {
			t.Errorf("%s: %d", bad, code)
		}
	}
}

func TestChangeTemplate(t *testing.T) {
	r, s := newTemplates(t)
	for _, c := range []struct {
		method, path, body string
		code               int
		want               []string
	}{
		{"POST", "/v1/templates/tags", `{"template":"web","tags":["a","b"],"aliases":["c"]}`, 200, []string{"inspect", "tag [a b]", "alias [c]"}},
		{"POST", "/v1/templates/tags", `{"template":"web"}`, 200, []string{"inspect"}},
		{"POST", "/v1/templates/tags", `{"template":"none","tags":["a"]}`, 404, nil},
		{"DELETE", "/v1/templates?template=web", "", 204, []string{"remove web false"}},
		{"DELETE", "/v1/templates?template=web:old", "", 204, []string{"remove web:old true"}},
		{"DELETE", "/v1/templates?template=none", "", 404, nil},
		{"POST", "/v1/sandboxes/i1/commit", `{"image":"mine:1"}`, 201, []string{"commit i1 mine:1"}},
	} {
		s.changes = nil
		if code, p := r.call(c.method, c.path, c.body, nil); code != c.code || !slices.Equal(s.changes, c.want) {
			t.Errorf("%s %s %s: %d %+v %q", c.method, c.path, c.body, code, p, s.changes)
		}
	}
}

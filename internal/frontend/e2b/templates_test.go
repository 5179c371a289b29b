package e2b_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/e2b"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/sandbox"
)

const (
	buildID  = "00000000-0000-4000-8000-000000000001"
	servedID = "taaaaaaaaaaaaaaaaaaa"
)

// templateService has one template with one build. List also returns a public template. It records
// the requests.
type templateService struct {
	req      templatebuild.Request
	spec     templatebuild.Spec
	uploaded string
	removed  []string
	dropped  string
	state    templatebuild.State
	entries  []templatebuild.Entry
}

func (m *templateService) template() catalog.Template {
	v := catalog.Version{Number: 1, Created: time.Unix(1, 0), Build: buildID}
	v.Limits.MemoryBytes = 256 << 20
	return catalog.Template{ID: servedID, Name: "ns/mine", Owner: "k1", Created: time.Unix(1, 0), Last: 1, Versions: []catalog.Version{v}, Tags: map[string]int{"default": 1, "v1": 1}}
}

func (m *templateService) record() templatebuild.Record {
	return templatebuild.Record{ID: buildID, Template: servedID, Name: "ns/mine", Tags: []string{"v1"}, State: m.state, Created: time.Unix(1, 0), Error: "why", Step: "2"}
}

func (m *templateService) Inspect(_ sandbox.Principal, name string) (catalog.Template, error) {
	if name != "ns/mine" && name != servedID {
		return catalog.Template{}, fault.New(fault.NotFound, "template_not_found", "not found")
	}
	return m.template(), nil
}

func (m *templateService) List(sandbox.Principal) ([]catalog.Template, error) {
	other := m.template()
	other.ID, other.Name, other.Owner, other.Created = "tbbbbbbbbbbbbbbbbbbb", "other", "", time.Unix(2, 0)
	return []catalog.Template{m.template(), other}, nil
}

func (m *templateService) Tag(_ context.Context, _ sandbox.Principal, name string, tags []string) (catalog.Template, error) {
	t := m.template()
	for _, tag := range tags {
		t.Tags[tag] = 1
	}
	return t, nil
}

func (m *templateService) Remove(_ context.Context, _ sandbox.Principal, name string, _ bool) error {
	m.removed = append(m.removed, name)
	return nil
}

// buildService implements TemplateBuilds, whose List has another type than that of UserTemplates.
type buildService struct{ *templateService }

func (b buildService) List(sandbox.Principal) ([]templatebuild.Record, error) {
	return []templatebuild.Record{b.record()}, nil
}

func (b buildService) Request(_ context.Context, _ sandbox.Principal, req templatebuild.Request) (templatebuild.Record, error) {
	b.req = req
	return b.record(), nil
}

func (b buildService) Link(_ sandbox.Principal, template, hash string) (bool, string, error) {
	return hash == "there", "TOKEN", nil
}

func (b buildService) Receive(token string, r io.Reader) error {
	if token != "TOKEN" {
		return fault.New(fault.NotFound, "upload_not_found", "not valid")
	}
	data, err := io.ReadAll(r)
	b.uploaded = string(data)
	return err
}

func (b buildService) Start(_ context.Context, _ sandbox.Principal, template, id string, spec templatebuild.Spec) error {
	b.spec = spec
	return nil
}

func (b buildService) Status(_ sandbox.Principal, template, id string, offset, limit int) (templatebuild.Record, []templatebuild.Entry, error) {
	list := b.entries[min(offset, len(b.entries)):]
	return b.record(), list[:min(limit, len(list))], nil
}

func (b buildService) Drop(_ sandbox.Principal, template string) (bool, error) {
	b.dropped = template
	return true, nil
}

func newTemplatesAPI(t testing.TB) (*templateService, http.Handler) {
	t.Helper()
	sandboxes, m := &memory{}, &templateService{state: templatebuild.Building}
	return m, e2b.New(e2b.Deps{
		Finder: sandboxes, Lifetimes: sandboxes, Monitor: sandboxes, Access: sandboxes, States: sandboxes, Snapshots: sandboxes, Templates: templates{}, Keys: keys{},
		UserTemplates: m, Builds: buildService{m}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

func TestTemplateBuild(t *testing.T) {
	m, h := newTemplatesAPI(t)
	w := do(h, "POST", "/v3/templates", `{"name":"ns/mine","tags":["v1"],"cpuCount":2,"memoryMB":512}`)
	if got := object(t, w); w.Code != http.StatusAccepted || got["templateID"] != servedID || got["buildID"] != buildID {
		t.Errorf("request: %d %v", w.Code, got)
	}
	if m.req.Limits.MilliCPU != 2000 || m.req.Limits.MemoryBytes != 512<<20 || m.req.Access.Net != sandbox.NetPolicy {
		t.Errorf("requested %+v", m.req)
	}
	for _, body := range []string{`{}`, `{"name":"x","cpuCount":0}`, `{"name":"x","memoryMB":-1}`, `{"name":7}`} {
		if w := do(h, "POST", "/v3/templates", body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}

	w = do(h, "GET", "/templates/"+servedID+"/files/missing", "")
	link := object(t, w)
	at, err := url.Parse(link["url"].(string))
	if err != nil || w.Code != http.StatusCreated || link["present"] != false || at.Host != "example.com" {
		t.Fatalf("link: %d %v", w.Code, link)
	}
	// An upload is sent without an API key.
	put := func(path string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("PUT", path, strings.NewReader("tar")))
		return w.Code
	}
	if code := put(at.Path); code != http.StatusOK || m.uploaded != "tar" {
		t.Errorf("upload: %d %q", code, m.uploaded)
	}
	if code := put(at.Path + "0"); code != http.StatusNotFound {
		t.Errorf("upload with another token: got status %d, want 404", code)
	}

	path := "/v2/templates/" + servedID + "/builds/" + buildID
	w = do(h, "POST", path, `{"fromImage":"a","startCmd":"s","force":true,"steps":[{"type":"COPY","args":["a","b"],"filesHash":"h","force":true,"gzip":true}]}`)
	if w.Code != http.StatusAccepted || w.Body.Len() > 0 || m.spec.Image != "a" || !m.spec.Force || len(m.spec.Steps) != 1 || m.spec.Steps[0].Files != "h" || !m.spec.Steps[0].Force {
		t.Errorf("start: %d %s %+v", w.Code, w.Body, m.spec)
	}
	for _, registry := range []string{`{"type":"registry","username":"u","password":"p"}`, `{"type":"aws"}`, `{"type":"gcp"}`} {
		wantFailure(t, do(h, "POST", path, `{"fromImage":"a","fromImageRegistry":`+registry+`}`), http.StatusBadRequest, "registry_credentials", "does not accept registry credentials")
	}
}

func TestTemplateBuildStatus(t *testing.T) {
	m, h := newTemplatesAPI(t)
	for n := range 150 {
		m.entries = append(m.entries, templatebuild.Entry{Time: time.Unix(int64(n), 0), Level: []string{"info", "error"}[n%2], Message: "line"})
	}
	path := "/templates/" + servedID + "/builds/" + buildID
	for query, want := range map[string]int{"": 100, "?logsOffset=100": 50, "?logsOffset=150": 0, "?limit=10": 10} {
		got := object(t, do(h, "GET", path+"/status"+query, ""))
		if entries := got["logEntries"].([]any); len(entries) != want || got["status"] != "building" || got["reason"] != nil {
			t.Errorf("%s: %d entries of %v", query, len(entries), got["status"])
		}
	}
	for _, query := range []string{"?logsOffset=-1", "?logsOffset=x", "?limit=0"} {
		if w := do(h, "GET", path+"/status"+query, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", query, w.Code)
		}
	}
	m.state = templatebuild.Failed
	reason := object(t, do(h, "GET", path+"/status", ""))["reason"].(map[string]any)
	if reason["message"] != "why" || reason["step"] != "2" {
		t.Errorf("got reason %v of the failed build", reason)
	}
	logs := object(t, do(h, "GET", path+"/logs?cursor=100000&direction=backward&level=error&limit=20", ""))["logs"].([]any)
	if first := logs[0].(map[string]any); len(logs) != 20 || first["timestamp"] != "1970-01-01T00:01:39Z" || first["level"] != "error" {
		t.Errorf("got %d log lines, the first %v", len(logs), first)
	}
}

func TestListAndChangeTemplates(t *testing.T) {
	m, h := newTemplatesAPI(t)
	if list := array(t, do(h, "GET", "/templates", "")); len(list) != 2 || list[0]["public"] != true || list[1]["memoryMB"] != float64(256) || list[1]["buildID"] != buildID {
		t.Errorf("got list %v", list)
	}
	w := do(h, "GET", "/v2/templates?limit=1", "")
	next := w.Header().Get("X-Next-Token")
	if list := array(t, do(h, "GET", "/v2/templates?nextToken="+next, "")); next == "" || len(list) != 1 || list[0]["templateID"] != servedID {
		t.Errorf("got second page %v", list)
	}
	for _, path := range []string{"/templates/ns%2Fmine", "/templates/" + servedID} {
		if got := object(t, do(h, "GET", path, "")); got["templateID"] != servedID || len(got["builds"].([]any)) != 1 {
			t.Errorf("%s: %v", path, got)
		}
	}
	if tags := array(t, do(h, "GET", "/templates/ns%2Fmine/tags", "")); len(tags) != 2 || tags[1]["tag"] != "v1" || tags[1]["buildID"] != buildID {
		t.Errorf("got tags %v", tags)
	}
	if w := do(h, "POST", "/templates/tags", `{"target":"ns/mine:v1","tags":["v2"]}`); w.Code != http.StatusCreated || object(t, w)["buildID"] != buildID {
		t.Errorf("assign: %d %s", w.Code, w.Body)
	}
	if w := do(h, "DELETE", "/templates/tags", `{"name":"ns/mine","tags":["v1","v2"]}`); w.Code != http.StatusNoContent || len(m.removed) != 2 || m.removed[1] != "ns/mine:v2" {
		t.Errorf("remove: %d %s %q", w.Code, w.Body, m.removed)
	}
	for _, body := range []string{`{"name":"ns/mine","tags":["a b"]}`, `{"name":"ns/mine"}`, `{"name":"..","tags":["a"]}`} {
		if w := do(h, "DELETE", "/templates/tags", body); w.Code != http.StatusBadRequest || len(m.removed) != 2 {
			t.Errorf("%s: %d", body, w.Code)
		}
	}
	if w := do(h, "PATCH", "/v2/templates/"+servedID, `{"public":false}`); w.Code != http.StatusOK {
		t.Errorf("unpublish: %d %s", w.Code, w.Body)
	}
	wantFailure(t, do(h, "PATCH", "/v2/templates/"+servedID, `{"public":true}`), http.StatusForbidden, "template_owner", "for that key")
	if w := do(h, "DELETE", "/templates/"+servedID, ""); w.Code != http.StatusNoContent || m.dropped != servedID {
		t.Errorf("delete: %d %s, dropped %q", w.Code, w.Body, m.dropped)
	}
	wantFailure(t, do(h, "GET", "/templates/none", ""), http.StatusNotFound, "template_not_found", "")
	wantFailure(t, do(h, "GET", "/templates/a/b/c/d/e", ""), http.StatusNotFound, "route_not_found", "")
}

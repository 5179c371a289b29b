package v1

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/store"
)

type templates struct{}

func (templates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	return sandbox.Template{ID: "aaaaaaaaaaaaaaaaaaaa", Name: "base", Image: engine.ViewOf("/", "")}, nil
}

// rig is the API on the real service and store, and the fake engine.
type rig struct {
	t       *testing.T
	deps    Deps
	handler http.Handler
	keys    *key.Ring
	log     *bytes.Buffer
	caller  sandbox.Principal
}

// secret is the key that the rig accepts.
const secret = "right"

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, log: &bytes.Buffer{}, caller: sandbox.Principal{KeyID: "k1"}}
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(r.log, nil))
	eng, err := fake.New(fake.Options{Dir: filepath.Join(dir, "run"), Enforces: []engine.Limit{engine.LimitPIDs}})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	service, err := audited.NewService(lifecycle.Deps{Store: st, Engines: fake.Registry(eng), Templates: templates{}, Audit: auditlog.New(&audittest.Log{}, slog.New(slog.DiscardHandler)), Log: log, Settings: sandbox.Settings{AnyBoundary: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(service.Close(context.Background()), st.Close()); err != nil {
			t.Error(err)
		}
		eng.Close()
	})
	r.keys = key.NewRing(st, log, func(context.Context, audit.Kind, key.Key) error { return nil })
	r.with(Deps{
		Finder: service, Lifetimes: service, Monitor: service, Access: service, NetworkLog: service, Pruner: service, States: &fakeStates{}, Snapshots: &fakeStates{}, Changes: service.Changes(), Guests: service, Queue: service, Keys: r.keys, Engines: fake.Registry(eng), Log: log, Version: "v9",
		Auth: func(req *http.Request) (sandbox.Principal, error) {
			if req.Header.Get("X-Api-Key") != secret {
				return sandbox.Principal{}, fault.New(fault.Unauthenticated, "key_invalid", "no")
			}
			return r.caller, nil
		},
	})
	return r
}

// with lets the rig's handler use other services.
func (r *rig) with(deps Deps) *rig {
	r.deps, r.handler = deps, New(deps)
	return r
}

func (r *rig) call(method, path, body string, out any) (int, api.Problem) {
	r.t.Helper()
	req := httptest.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(body))
	req.Header.Set("X-Api-Key", secret)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	var p api.Problem
	if w.Code >= 300 {
		if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
			r.t.Errorf("%s %s: %d with content type %q: %s", method, path, w.Code, ct, w.Body)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Kind == "" || p.Code == "" {
			r.t.Errorf("%s %s: %d %s: %v", method, path, w.Code, w.Body, err)
		}
		return w.Code, p
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			r.t.Errorf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
	return w.Code, p
}

// described is how many of everyRoute are in the OpenAPI document.
const described = 27

var everyRoute = [][2]string{
	{"POST", "/v1/sandboxes"}, {"GET", "/v1/sandboxes"}, {"GET", "/v1/sandboxes/i1"}, {"DELETE", "/v1/sandboxes/i1"},
	{"POST", "/v1/sandboxes/i1/timeout"}, {"POST", "/v1/sandboxes/i1/extend"}, {"POST", "/v1/sandboxes/i1/exec"},
	{"GET", "/v1/sandboxes/i1/metrics"}, {"GET", "/v1/sandboxes/i1/logs"}, {"GET", "/v1/sandboxes/i1/processes"}, {"POST", "/v1/prune"}, {"GET", "/v1/engine"},
	{"GET", "/v1/keys"}, {"POST", "/v1/keys"}, {"DELETE", "/v1/keys/k1"}, {"GET", "/v1/version"},
	{"POST", "/v1/sandboxes/i1/pause"}, {"POST", "/v1/sandboxes/i1/resume"}, {"POST", "/v1/sandboxes/i1/fork"},
	{"POST", "/v1/sandboxes/i1/rollback"}, {"POST", "/v1/sandboxes/i1/reset"}, {"POST", "/v1/sandboxes/i1/snapshots"},
	{"GET", "/v1/snapshots"}, {"GET", "/v1/snapshots/k1"}, {"DELETE", "/v1/snapshots/k1"},
	{"GET", "/v1/queue"}, {"GET", "/v1/metrics"},
	{"GET", "/v1/openapi.json"}, {"GET", "/v1/no-such-route"}, {"PATCH", "/v1/sandboxes"}, {"GET", "/v1"},
}

// P1: without a key the API reveals nothing, not even which routes exist.
func TestWithoutKeyNothingIsRevealed(t *testing.T) {
	r := newRig(t)
	var first string
	for _, route := range everyRoute {
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, httptest.NewRequest(route[0], route[1], strings.NewReader("{")))
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%v: %d", route, w.Code)
		}
		if first == "" {
			first = w.Body.String()
		}
		if w.Body.String() != first {
			t.Errorf("%v is answered differently: %s", route, w.Body)
		}
	}
}

func TestOpenAPIHasEveryRoute(t *testing.T) {
	r := newRig(t)
	var doc struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}
	if code, _ := r.call("GET", "/v1/openapi.json", "", &doc); code != 200 || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("GET /v1/openapi.json: got %d %q", code, doc.OpenAPI)
	}
	replace := strings.NewReplacer("/i1", "/{id}", "/k1", "/{id}")
	for _, route := range everyRoute[:described] {
		if doc.Paths[replace.Replace(route[1])][strings.ToLower(route[0])] == nil {
			t.Errorf("%v is not described", route)
		}
	}
}

func TestCreateSandbox(t *testing.T) {
	r := newRig(t)
	var sb api.Sandbox
	body := `{"timeout_seconds":60.5,"metadata":{"a":"b"},"env":{"TOKEN":"hush"},"limits":{"pids":64}}`
	started := time.Now()
	if code, p := r.call("POST", "/v1/sandboxes", body, &sb); code != http.StatusCreated {
		t.Fatalf("POST /v1/sandboxes: got %d %+v", code, p)
	}
	if sb.Owner != "k1" || sb.Effective.PIDs != 64 || sb.Effective.MemoryBytes == 0 || sb.AccessToken == "" {
		t.Errorf("POST /v1/sandboxes: got %+v", sb)
	}
	const life = 60500 * time.Millisecond
	if ends := *sb.EndsAt; ends.Before(started.Add(life)) || ends.After(time.Now().Add(life)) {
		t.Errorf("started at %v, it ends at %v", started, ends)
	}
	var list api.SandboxList
	r.call("GET", "/v1/sandboxes?metadata=a%3Db", "", &list)
	if len(list.Sandboxes) != 1 || list.Sandboxes[0].AccessToken != "" {
		t.Errorf("GET /v1/sandboxes: got %+v", list)
	}
	if code, _ := r.call("POST", "/v1/sandboxes/"+sb.ID+"/timeout", `{"seconds":10}`, &sb); code != 200 {
		t.Errorf("timeout: %d", code)
	}
	// Another key's sandbox is not found, in every way to ask for it.
	r.caller = sandbox.Principal{KeyID: "k2"}
	for _, route := range everyRoute[2:9] {
		path := strings.ReplaceAll(route[1], "i1", sb.ID)
		body := map[string]string{"POST": `{"seconds":1}`}[route[0]]
		if strings.HasSuffix(path, "exec") {
			body = `{"cmd":["true"]}`
		}
		if code, p := r.call(route[0], path, body, nil); code != http.StatusNotFound || p.Code != "sandbox_not_found" {
			t.Errorf("%s %s: %d %+v", route[0], path, code, p)
		}
	}
}

func TestBadRequests(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/sandboxes", `{`, 400, "invalid_json"},
		{"POST", "/v1/sandboxes", `{} {}`, 400, "invalid_json"},
		{"POST", "/v1/sandboxes", `[]`, 400, ""},
		{"POST", "/v1/sandboxes", ``, 400, ""},
		{"POST", "/v1/sandboxes", `{"bogus":1}`, 400, "invalid_request"},
		{"POST", "/v1/sandboxes", `{"timeout_seconds":"5"}`, 400, "invalid_request"},
		{"POST", "/v1/sandboxes", `{"timeout_seconds":-1}`, 400, "invalid_request"},
		{"POST", "/v1/sandboxes", `{"timeout_seconds":1e300}`, 400, "invalid_duration"},
		{"POST", "/v1/sandboxes", `{"limits":{"memory_bytes":-1}}`, 400, "invalid_request"},
		{"POST", "/v1/sandboxes", `{"limits":{"memory_bytes":9223372036854775807}}`, 400, "limit_out_of_range"},
		{"POST", "/v1/sandboxes", `{"template":"no-such"}`, 404, "template_not_found"},
		{"POST", "/v1/sandboxes", `{"forever":true}`, 403, "local_only"},
		{"POST", "/v1/sandboxes", `{"workspace":"/etc"}`, 403, "local_only"},
		{"POST", "/v1/sandboxes", `{"programs":["/etc/passwd"]}`, 403, "local_only"},
		{"POST", "/v1/sandboxes", `{"ephemeral":true}`, 403, "local_only"},
		{"GET", "/v1/sandboxes?limit=101", ``, 400, "invalid_request"},
		{"GET", "/v1/sandboxes?limit=x", ``, 400, "invalid_request"},
		{"GET", "/v1/sandboxes?bogus=1", ``, 400, "invalid_request"},
		{"GET", "/v1/sandboxes?state=dancing", ``, 400, "invalid_state"},
		{"GET", "/v1/sandboxes?cursor=AAAA", ``, 400, "invalid_cursor"},
		{"GET", "/v1/sandboxes?metadata=novalue", ``, 400, "invalid_metadata"},
		{"GET", "/v1/sandboxes/missing", ``, 404, "sandbox_not_found"},
		{"GET", "/v1/sandboxes/..%2Fkeys", ``, 404, "sandbox_not_found"},
		{"DELETE", "/v1/sandboxes/missing", ``, 404, "sandbox_not_found"},
		{"POST", "/v1/sandboxes/missing/exec", `{"cmd":["true"]}`, 404, "sandbox_not_found"},
		{"POST", "/v1/sandboxes/missing/exec", `{"cmd":null}`, 400, ""},
		{"POST", "/v1/sandboxes/missing/exec", `{"cmd":[""]}`, 400, "empty_command"},
		{"GET", "/v1/no-such-route", ``, 404, "route_not_found"},
		{"PATCH", "/v1/sandboxes", ``, 404, "route_not_found"},
		{"POST", "/v1/prune", ``, 403, "local_only"},
		{"GET", "/v1/keys", ``, 403, "local_only"},
		{"POST", "/v1/keys", `{}`, 403, "local_only"},
		{"DELETE", "/v1/keys/k1", ``, 403, "local_only"},
		{"POST", "/v1/sandboxes", `{"name":"` + strings.Repeat("a", maxBody) + `"}`, 413, "body_too_large"},
	} {
		code, p := r.call(test.method, test.path, test.body, nil)
		body := test.body[:min(len(test.body), 60)]
		if code != test.status || test.code != "" && p.Code != test.code {
			t.Errorf("%s %s %s: %d %s %q, want %d %s", test.method, test.path, body, code, p.Code, p.Detail, test.status, test.code)
		}
	}
}

func TestLocalCallers(t *testing.T) {
	r := newRig(t)
	r.caller = sandbox.Principal{Local: true}
	var made api.NewKey
	if code, _ := r.call("POST", "/v1/keys", `{"name":"robot"}`, &made); code != http.StatusCreated || !strings.HasPrefix(made.Secret, key.Prefix) {
		t.Fatalf("POST /v1/keys: got %d %+v", code, made)
	}
	var list api.KeyList
	if code, _ := r.call("GET", "/v1/keys", "", &list); code != 200 || len(list.Keys) != 1 || list.Keys[0].Name != "robot" {
		t.Errorf("GET /v1/keys: got %d %+v", code, list)
	}
	if code, _ := r.call("DELETE", "/v1/keys/"+made.ID, "", nil); code != http.StatusNoContent {
		t.Errorf("revoke: %d", code)
	}
	if code, _ := r.call("DELETE", "/v1/keys/"+made.ID, "", nil); code != http.StatusNotFound {
		t.Errorf("revoke again: %d", code)
	}
	var sb api.Sandbox
	if code, _ := r.call("POST", "/v1/sandboxes", `{"forever":true}`, &sb); code != http.StatusCreated || sb.EndsAt != nil {
		t.Errorf("forever: %d %+v", code, sb)
	}
	r.call("POST", "/v1/sandboxes/"+sb.ID+"/timeout", `{"seconds":0}`, nil)
	var pruned api.Pruned
	if code, _ := r.call("POST", "/v1/prune", "", &pruned); code != 200 || len(pruned.Removed) != 1 {
		t.Errorf("prune: %d %+v", code, pruned)
	}
	var eng api.Engine
	if code, _ := r.call("GET", "/v1/engine", "", &eng); code != 200 || eng.Boundary != "none" || eng.Defaults.MemoryBytes == 0 {
		t.Errorf("engine: %d %+v", code, eng)
	}
	var engines api.EngineList
	if code, _ := r.call("GET", "/v1/engines", "", &engines); code != 200 || len(engines.Engines) != 1 || !reflect.DeepEqual(engines.Engines[0], eng) ||
		!eng.Default || !eng.Available || !slices.Contains(eng.Capabilities, "checkpointer") {
		t.Errorf("engines: %d %+v", code, engines)
	}
	if code, p := r.call("POST", "/v1/sandboxes", `{"engine":"wall"}`, nil); code != http.StatusBadRequest || p.Code != "engine_unknown" || !strings.Contains(p.Hint, "fake") {
		t.Errorf("an unknown engine: %d %+v", code, p)
	}
	if code, _ := r.call("POST", "/v1/sandboxes", `{"engine":"fake"}`, &sb); code != http.StatusCreated || sb.Engine != "fake" {
		t.Errorf("a known engine: %d %+v", code, sb)
	}
	var version api.Version
	if r.call("GET", "/v1/version", "", &version); version.Version != "v9" {
		t.Errorf("GET /v1/version: got %+v", version)
	}
}

// A panic is answered as an internal error without its cause, and is logged.
func TestPanicIsAnInternalError(t *testing.T) {
	r := newRig(t)
	r.deps.Finder = nil
	r.with(r.deps)
	code, p := r.call("GET", "/v1/sandboxes/x", "", nil)
	if code != http.StatusInternalServerError || strings.Contains(p.Detail, "nil") {
		t.Errorf("GET /v1/sandboxes/x: got %d %+v", code, p)
	}
	if !strings.Contains(r.log.String(), "panic") {
		t.Errorf("log: %s", r.log)
	}
}

func TestEveryKindHasStatus(t *testing.T) {
	want := map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 400, fault.Unauthenticated: 401, fault.Denied: 403,
		fault.NotFound: 404, fault.Exists: 409, fault.Conflict: 409, fault.Exhausted: 429,
		fault.Unsupported: 501, fault.Unavailable: 503, fault.Timeout: 504, fault.Canceled: 499,
	}
	for _, k := range fault.Kinds {
		if p := problemOf(fault.New(k, "some_code", "some text")); p.Status != want[k] {
			t.Errorf("%s has the status %d, want %d", k, p.Status, want[k])
		}
	}
	for err, status := range map[error]int{
		fault.New("unheard_of", "some_code", "some text"):         500,
		fault.New(fault.Exhausted, "body_too_large", "some text"): 413,
	} {
		if p := problemOf(err); p.Status != status {
			t.Errorf("%v has the status %d, want %d", err, p.Status, status)
		}
	}
}

func TestInternalErrorsAreNotRevealed(t *testing.T) {
	p := problemOf(errors.New("password is hunter2"))
	b, err := json.Marshal(p)
	if err != nil || strings.Contains(string(b), "hunter2") {
		t.Errorf("problem: got %s %v", b, err)
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[float64]time.Duration{0: 0, 1.5: 1500 * time.Millisecond, 1e-9: time.Millisecond} {
		if got, err := duration("x", in); err != nil || got != want {
			t.Errorf("%v: %v %v", in, got, err)
		}
	}
	for _, bad := range []float64{-1, math.NaN(), math.Inf(1), 1e18} {
		if d, err := duration("x", bad); err == nil {
			t.Errorf("%v is %v", bad, d)
		}
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("AAAA")
	f.Add(cursorOf(time.Unix(1, 2), "i1"))
	f.Fuzz(func(t *testing.T, s string) {
		at, id, err := readCursor(s)
		if err == nil && (id == "" || at.IsZero()) {
			t.Fatalf("%q is accepted", s)
		}
	})
}

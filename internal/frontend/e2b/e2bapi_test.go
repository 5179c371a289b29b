package e2b_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/e2b"
	"github.com/crannog/crannog/internal/sandbox"
)

const unknownID = "izzzzzzzzzzzzzzzzzzz"

func newAPI(t testing.TB) (*memory, http.Handler) {
	t.Helper()
	sandboxes := &memory{}
	return sandboxes, e2b.New(e2b.Deps{
		Finder: sandboxes, Lifetimes: sandboxes, Monitor: sandboxes, Access: sandboxes, States: sandboxes, Snapshots: sandboxes, Templates: templates{}, Keys: keys{},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Domain: "sbx.example:8443",
	})
}

// do sends a request as the SDKs do: with a key, and with a body of unknown length.
func do(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	var reader io.Reader
	if body != "" {
		reader = iotest.OneByteReader(strings.NewReader(body))
	}
	r := httptest.NewRequest(method, path, reader)
	r.Header.Set("X-API-KEY", goodKey)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// object decodes a response that must be a JSON object.
func object(t testing.TB, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("the answer %q is no JSON object: %v", w.Body, err)
	}
	return v
}

// wantFailure checks that an error has its status in the header and in the body, because clients
// read the number in the body.
func wantFailure(t testing.TB, w *httptest.ResponseRecorder, status int, errorCode, message string) {
	t.Helper()
	if w.Code != status {
		t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	got := object(t, w)
	if got["code"] != float64(status) || got["error_code"] != errorCode {
		t.Errorf("body %s, want code %d and error_code %q", w.Body, status, errorCode)
	}
	if text, _ := got["message"].(string); !strings.Contains(text, message) || text == "" {
		t.Errorf("message %q, want %q in it", text, message)
	}
}

// create creates a sandbox and returns its ID.
func create(t testing.TB, h http.Handler, body string) string {
	t.Helper()
	w := do(h, "POST", "/v2/sandboxes", body)
	if w.Code != http.StatusCreated {
		t.Fatalf("create: %d %s", w.Code, w.Body)
	}
	return object(t, w)["sandboxID"].(string)
}

// TestInvalidKeyRevealsNothing checks that all requests with an invalid key get the same response.
func TestInvalidKeyRevealsNothing(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	want := do(h, "GET", "/no/such/thing", "", "X-API-KEY", "").Body.String()
	for _, key := range []string{"", "e2b_", "x", strings.ToUpper(goodKey), goodKey + "0", strings.Repeat("e", 1<<16)} {
		for _, c := range []struct{ method, path, body string }{
			{"POST", "/sandboxes", `{"templateID":"base"}`},
			{"POST", "/v2/sandboxes", `{`},
			{"POST", "/v2/sandboxes", strings.Repeat("x", 2<<20)},
			{"GET", "/sandboxes", ""},
			{"GET", "/sandboxes/" + sandboxes.list[0].ID, ""},
			{"GET", "/sandboxes/" + unknownID, ""},
			{"DELETE", "/sandboxes/" + sandboxes.list[0].ID, ""},
			{"GET", "//sandboxes", ""},
			{"GET", "/sandboxes/../health", ""},
			{"PATCH", "/health", ""},
			{"GET", "/templates", ""},
			{"OPTIONS", "/sandboxes", ""},
		} {
			w := do(h, c.method, c.path, c.body, "X-API-KEY", key)
			wantFailure(t, w, http.StatusUnauthorized, "key_invalid", "API key")
			if w.Body.String() != want {
				t.Errorf("%s %s: got %s, want the same body as for an unknown route", c.method, c.path, w.Body)
			}
		}
	}
	if len(sandboxes.list) != 1 || sandboxes.made != 1 {
		t.Error("a caller without a key changed something")
	}
}

func TestHealthNeedsNoKey(t *testing.T) {
	_, h := newAPI(t)
	if w := do(h, "GET", "/health", "", "X-API-KEY", ""); w.Code != http.StatusOK {
		t.Fatalf("health: %d %s", w.Code, w.Body)
	}
}

func TestSandboxOfAnotherKeyIsNotFound(t *testing.T) {
	_, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/sandboxes/" + id, ""},
		{"DELETE", "/sandboxes/" + id, ""},
		{"POST", "/sandboxes/" + id + "/timeout", `{"timeout":1}`},
		{"POST", "/sandboxes/" + id + "/refreshes", ""},
		{"POST", "/sandboxes/" + id + "/connect", `{"timeout":1}`},
		{"POST", "/v2/sandboxes/" + id + "/connect", ""},
		{"GET", "/sandboxes/" + id + "/metrics", ""},
		{"GET", "/sandboxes/" + id + "/logs", ""},
		{"GET", "/v2/sandboxes/" + id + "/logs", ""},
		{"POST", "/sandboxes/" + id + "/pause", ""},
		{"POST", "/sandboxes/" + id + "/resume", ""},
		{"POST", "/sandboxes/" + id + "/fork", ""},
		{"POST", "/sandboxes/" + id + "/snapshots", "{}"},
	} {
		w := do(h, c.method, c.path, c.body, "X-API-KEY", otherKey)
		wantFailure(t, w, http.StatusNotFound, "sandbox_not_found",
			`Sandbox "`+id+`" doesn't exist or you don't have access to it`)
	}
	if w := do(h, "GET", "/v2/sandboxes", "", "X-API-KEY", otherKey); w.Body.String() != "[]" {
		t.Errorf("another key lists %s", w.Body)
	}
}

func TestSandboxIDs(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	sandboxes.list[0].Name = "web"
	id := sandboxes.list[0].ID
	for path, status := range map[string]int{
		id:                        http.StatusOK,
		id + "-client0":           http.StatusOK,
		id + "-":                  http.StatusBadRequest,
		id + "-a-b":               http.StatusBadRequest,
		"-" + id:                  http.StatusBadRequest,
		strings.ToUpper(id):       http.StatusBadRequest,
		"..%2f..%2fetc":           http.StatusBadRequest,
		"a%00b":                   http.StatusBadRequest,
		"%E2%80%AE":               http.StatusBadRequest,
		strings.Repeat("a", 9999): http.StatusBadRequest,
		unknownID:                 http.StatusNotFound,
		"web":                     http.StatusNotFound, // this API has no names
	} {
		w := do(h, "GET", "/sandboxes/"+path, "")
		if w.Code != status {
			t.Errorf("%.60s: %d, want %d", path, w.Code, status)
		}
		if status == http.StatusBadRequest {
			wantFailure(t, w, status, "sandbox_id_invalid", "Invalid sandbox ID")
		}
	}
}

func TestEndedSandboxIsNotFound(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	for _, state := range []sandbox.State{sandbox.Creating, sandbox.Stopping, sandbox.Stopped} {
		sandboxes.list[0].State = state
		w := do(h, "GET", "/sandboxes/"+sandboxes.list[0].ID, "")
		wantFailure(t, w, http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	}
}

// TestConnectToEndingSandbox checks that a client that connects to a stopping sandbox gets a
// conflict.
func TestConnectToEndingSandbox(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	for _, path := range []string{"/v2/sandboxes/%s/connect", "/sandboxes/%s/connect", "/sandboxes/%s/resume"} {
		path = fmt.Sprintf(path, sandboxes.list[0].ID)
		sandboxes.list[0].State = sandbox.Stopping
		wantFailure(t, do(h, "POST", path, `{"timeout":60}`), http.StatusConflict, "sandbox_stopping", "is being stopped")
		sandboxes.list[0].State = sandbox.Stopped
		wantFailure(t, do(h, "POST", path, `{"timeout":60}`), http.StatusNotFound, "sandbox_not_found", "")
	}
}

func TestUnsupportedRoutes(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	id := sandboxes.list[0].ID
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v3/templates", `{}`},
		{"GET", "/templates", ""},
		{"GET", "/volumes", ""},
		{"GET", "/secrets", ""},
		{"GET", "/teams", ""},
	} {
		w := do(h, c.method, c.path, c.body)
		wantFailure(t, w, http.StatusNotImplemented, "not_supported", "is not supported by this server yet")
	}
	if len(sandboxes.list) != 1 {
		t.Error("an unsupported call removed the sandbox")
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+unknownID+"/pause", ""), http.StatusNotFound, "sandbox_not_found", "")
	wantFailure(t, do(h, "GET", "/nothing", ""), http.StatusNotFound, "route_not_found", "no such endpoint")
	wantFailure(t, do(h, "GET", "/v2/nothing", ""), http.StatusNotFound, "route_not_found", "no such endpoint")
	wantFailure(t, do(h, "PATCH", "/sandboxes/"+id, ""), http.StatusNotFound, "route_not_found", "no such endpoint")
}

func TestStatusOfEachFaultKind(t *testing.T) {
	sandboxes, h := newAPI(t)
	want := map[fault.Kind]int{
		fault.Internal: 500, fault.Invalid: 400, fault.Unauthenticated: 401, fault.Denied: 403,
		fault.NotFound: 404, fault.Exists: 409, fault.Conflict: 409, fault.Exhausted: 429,
		fault.Unsupported: 501, fault.Unavailable: 503, fault.Timeout: 504, fault.Canceled: 499,
	}
	for _, kind := range fault.Kinds {
		sandboxes.fail = fault.New(kind, "some_code", "some text").WithHint("some advice")
		w := do(h, "POST", "/v2/sandboxes", `{"templateID":"base"}`)
		text := "some text; some advice"
		if kind == fault.Internal {
			text = "internal error"
		}
		wantFailure(t, w, want[kind], "some_code", text)
		if kind == fault.Internal && strings.Contains(w.Body.String(), "some text") {
			t.Error("the response contains the text of an internal error")
		}
	}
	for err, status := range map[*fault.Error]int{
		fault.New("unheard_of", "some_code", "some text"):         500,
		fault.New(fault.Exhausted, "body_too_large", "some text"): 413,
	} {
		sandboxes.fail = err
		wantFailure(t, do(h, "POST", "/v2/sandboxes", `{"templateID":"base"}`), status, err.Code, "some text")
	}
}

func TestInternalCauseIsNotSent(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fail = io.ErrUnexpectedEOF
	w := do(h, "GET", "/v2/sandboxes", "")
	wantFailure(t, w, http.StatusInternalServerError, "internal", "internal error")
	if strings.Contains(w.Body.String(), "EOF") {
		t.Errorf("the response contains the cause: %s", w.Body)
	}
}

func TestDetailHasRequiredFields(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(1, "k1")
	sandboxes.list[0].Limits = sandbox.Limits{Limits: engine.Limits{MilliCPU: 1500, MemoryBytes: 256 << 20, DiskBytes: 1 << 30}}
	got := object(t, do(h, "GET", "/sandboxes/"+sandboxes.list[0].ID, ""))
	for field, want := range map[string]any{
		"sandboxID": sandboxes.list[0].ID, "templateID": templateID, "clientID": "crannog", "alias": "base",
		"startedAt": "2026-01-02T03:04:05.678901Z", "endAt": "2026-01-02T04:04:05.678901Z",
		"state": "running", "cpuCount": 2.0, "memoryMB": 256.0, "diskSizeMB": 1024.0, "envdVersion": "0.6.13",
		"envdAccessToken": "token", "domain": "sbx.example:8443", "allowInternetAccess": false,
	} {
		if got[field] != want {
			t.Errorf("%s = %v, want %v", field, got[field], want)
		}
	}
	if l := got["lifecycle"].(map[string]any); l["onTimeout"] != "kill" || l["autoResume"] != false {
		t.Errorf("lifecycle = %v", l)
	}
	if n := got["network"].(map[string]any); n["allowPublicTraffic"] != true {
		t.Errorf("network = %v", n)
	}
	if l := got["limits"].(map[string]any); l["cpuMillis"] != 1500.0 || l["pids"] != 512.0 {
		t.Errorf("limits = %v", l)
	}
}

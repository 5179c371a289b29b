package v1

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/store"
)

const canary = "canary-Zq81-value-of-a-secret"

// secretRig is the API on the real vault and store, without sandboxes.
func secretRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &rig{t: t, log: &bytes.Buffer{}, caller: sandbox.Principal{KeyID: "k1"}}
	r.with(Deps{
		Secrets: secrets.New(secrets.Options{Store: st, Keys: secrets.NewKeyFile(filepath.Join(dir, secrets.KeyFileName))}),
		Log:     slog.New(slog.NewTextHandler(r.log, nil)),
		Auth: func(req *http.Request) (sandbox.Principal, error) {
			if req.Header.Get("X-Api-Key") != secret {
				return sandbox.Principal{}, fault.New(fault.Unauthenticated, "key_invalid", "no")
			}
			return r.caller, nil
		},
	})
	return r
}

func TestSecrets(t *testing.T) {
	r := secretRig(t)
	var s api.Secret
	if code, _ := r.call("POST", "/v1/secrets", `{"name":"TOKEN","value":"`+canary+`","metadata":{"a":"b"}}`, &s); code != 201 || s.Version != 1 || s.Metadata["a"] != "b" {
		t.Fatalf("POST /v1/secrets: got %d %+v", code, s)
	}
	if code, p := r.call("POST", "/v1/secrets", `{"name":"token","value":"`+canary+`"}`, nil); code != 409 || p.Code != "secret_exists" {
		t.Errorf("POST /v1/secrets: got %d %+v", code, p)
	}
	if code, _ := r.call("POST", "/v1/secrets/TOKEN/rotate", `{"value":"`+canary+`2"}`, &s); code != 200 || s.Version != 2 || s.Metadata["a"] != "b" {
		t.Errorf("POST /v1/secrets/TOKEN/rotate: got %d %+v", code, s)
	}
	if code, _ := r.call("GET", "/v1/secrets/"+s.ID, "", &s); code != 200 || s.Name != "TOKEN" {
		t.Errorf("GET /v1/secrets/*: got %d %+v", code, s)
	}
	// Another key and the machine's user see nothing of it.
	for _, caller := range []sandbox.Principal{{KeyID: "k2"}, {Local: true}} {
		r.caller = caller
		var list api.SecretList
		if code, _ := r.call("GET", "/v1/secrets", "", &list); code != 200 || list.Secrets == nil || len(list.Secrets) != 0 {
			t.Errorf("%+v lists %d %+v", caller, code, list)
		}
		for _, c := range [][3]string{{"GET", "/v1/secrets/TOKEN", ""}, {"DELETE", "/v1/secrets/" + s.ID, ""}, {"POST", "/v1/secrets/TOKEN/rotate", `{"value":"another value"}`}} {
			if code, p := r.call(c[0], c[1], c[2], nil); code != 404 || p.Code != "secret_not_found" {
				t.Errorf("%+v %v: %d %+v", caller, c, code, p)
			}
		}
	}
	r.caller = sandbox.Principal{KeyID: "k1"}
	if code, p := r.call("POST", "/v1/secrets/rotate-key", "", nil); code != 403 || p.Code != "local_only" {
		t.Errorf("a key rotates the key of all: %d %+v", code, p)
	}
	r.caller = sandbox.Principal{Local: true}
	var rotated api.RotatedKey
	if code, _ := r.call("POST", "/v1/secrets/rotate-key", "", &rotated); code != 200 || rotated.Moved != 2 {
		t.Errorf("POST /v1/secrets/rotate-key: got %d %+v", code, rotated)
	}
	r.caller = sandbox.Principal{KeyID: "k1"}
	if code, _ := r.call("DELETE", "/v1/secrets/TOKEN", "", nil); code != 204 {
		t.Errorf("DELETE /v1/secrets/TOKEN: got %v", code)
	}
	if code, _ := r.call("GET", "/v1/secrets/TOKEN", "", nil); code != 404 {
		t.Errorf("GET /v1/secrets/TOKEN: got %v", code)
	}
	// A caller without a key does not learn that there are such routes.
	w := httptest.NewRecorder()
	if r.handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/secrets", nil)); w.Code != 401 {
		t.Errorf("GET /v1/secrets: got %v", w.Code)
	}
}

// No answer and no log line repeats a value, whatever is wrong with a call.
func TestSecretValuesAreNotShown(t *testing.T) {
	r := secretRig(t)
	for _, c := range [][3]string{
		{"POST", "/v1/secrets", `{"name":"TOKEN","value":"` + canary + `"}`},
		{"POST", "/v1/secrets", `{"name":"TOKEN","value":"` + canary + `"}`},
		{"POST", "/v1/secrets", `{"name":"` + canary + ` x","value":"` + canary + `"}`},
		{"POST", "/v1/secrets", `{"name":"A","value":"` + canary + "\xff" + `"}`},
		{"POST", "/v1/secrets", `{"name":["` + canary + `"],"value":"` + canary + `"}`},
		{"POST", "/v1/secrets", `{"name":"A","value":{"x":"` + canary + `"}}`},
		{"POST", "/v1/secrets", `{"name":"A","value":"` + canary + `","metadata":{"":"` + canary + `"}}`},
		{"POST", "/v1/secrets", `{"name":"A","value":"` + canary + `","more":"` + canary + `"}`},
		{"POST", "/v1/secrets", `{"value":"` + canary},
		{"POST", "/v1/secrets/TOKEN/rotate", `{"value":"` + canary + `"}`},
		{"POST", "/v1/secrets/NONE/rotate", `{"value":"` + canary + `"}`},
		{"GET", "/v1/secrets", ""}, {"GET", "/v1/secrets/TOKEN", ""}, {"DELETE", "/v1/secrets/TOKEN", ""},
	} {
		req := httptest.NewRequestWithContext(t.Context(), c[0], c[1], strings.NewReader(c[2]))
		req.Header.Set("X-Api-Key", secret)
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		r.handler.ServeHTTP(w, req)
		if w.Code >= 500 {
			t.Errorf("%v: %d %s", c, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%v shows %s", c, w.Body)
		}
	}
	if strings.Contains(r.log.String(), "canary") {
		t.Errorf("the log shows a value: %s", r.log)
	}
}

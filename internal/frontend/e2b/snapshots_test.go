package e2b_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/crannog/crannog/internal/frontend/e2b"
)

// newAPIWith returns an API whose Lifetimes the test provides.
func newAPIWith(t testing.TB, sandboxes *memory, lifetimes e2b.Lifetimes) http.Handler {
	t.Helper()
	return e2b.New(e2b.Deps{
		Finder: sandboxes, Lifetimes: lifetimes, Monitor: sandboxes, Access: sandboxes, States: sandboxes, Snapshots: sandboxes, Templates: templates{}, Keys: keys{},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

// array decodes a response that must be a JSON array.
func array(t testing.TB, w *httptest.ResponseRecorder) []map[string]any {
	t.Helper()
	var v []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v == nil {
		t.Fatalf("the answer %d %q is no JSON array: %v", w.Code, w.Body, err)
	}
	return v
}

func takeSnapshot(t testing.TB, h http.Handler, id, body string) map[string]any {
	t.Helper()
	w := do(h, "POST", "/sandboxes/"+id+"/snapshots", body)
	if w.Code != http.StatusCreated {
		t.Fatalf("snapshot: %d %s", w.Code, w.Body)
	}
	return object(t, w)
}

func TestTakeSnapshot(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	plain := takeSnapshot(t, h, id, `{}`)
	if names, ok := plain["names"].([]any); plain["snapshotID"] != "s0000000000000000000:default" || !ok || len(names) != 0 {
		t.Errorf("got snapshot without a name %v", plain)
	}
	named := takeSnapshot(t, h, id, `{"name":" Before "}`)
	if names := named["names"].([]any); len(names) != 1 || names[0] != "before:default" || sandboxes.snapshots[1].Name != "before" {
		t.Errorf("got named snapshot %v", named)
	}
	takeSnapshot(t, h, id, ``)
	for body, code := range map[string]string{
		`{"name":"a b"}`: "template_reference_invalid", `{"name":"../x"}`: "template_reference_invalid", `{"name":7}`: "field_invalid",
	} {
		wantFailure(t, do(h, "POST", "/sandboxes/"+id+"/snapshots", body), http.StatusBadRequest, code, "")
	}
	for _, name := range []string{"a:v1", "team/a"} {
		w := do(h, "POST", "/sandboxes/"+id+"/snapshots", `{"name":"`+name+`"}`)
		wantFailure(t, w, http.StatusNotImplemented, "not_supported", "namespace or tag")
	}
	wantFailure(t, do(h, "POST", "/sandboxes/"+unknownID+"/snapshots", `{}`), http.StatusNotFound, "sandbox_not_found", "doesn't exist")
	if len(sandboxes.snapshots) != 3 {
		t.Errorf("%d snapshots", len(sandboxes.snapshots))
	}
	// A sandbox can be created from each snapshot.
	for _, ref := range []string{plain["snapshotID"].(string), "before", "before:default"} {
		create(t, h, `{"templateID":"`+ref+`"}`)
	}
	w := do(h, "POST", "/v2/sandboxes", `{"templateID":"before"}`, "X-API-KEY", otherKey)
	wantFailure(t, w, http.StatusNotFound, "template_not_found", "template 'before' not found")
}

func TestListSnapshots(t *testing.T) {
	sandboxes, h := newAPI(t)
	first, second := create(t, h, `{"templateID":"base"}`), create(t, h, `{"templateID":"base"}`)
	const n = 250
	for i := range n {
		id, body := first, `{}`
		if i%2 == 1 {
			id, body = second, fmt.Sprintf(`{"name":"name%d"}`, i%10)
		}
		takeSnapshot(t, h, id, body)
	}
	for query, want := range map[string]int{
		"": n, "limit=7": n, "sandboxID=" + first: n / 2, "sandboxID=" + second + "-client": n / 2, "sandboxID=" + unknownID: 0,
		"name=name1": n / 10, "name=name1:default": n / 10, "name=name1&sandboxID=" + first: 0,
		"name=s0000000000000000004:default": 1,
	} {
		seen := map[any]bool{}
		token, before := "", "t"
		for {
			w := do(h, "GET", "/snapshots?"+query+"&nextToken="+url.QueryEscape(token), "")
			if w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", query, w.Code, w.Body)
			}
			for _, s := range array(t, w) {
				id := s["snapshotID"].(string)
				if seen[id] || id >= before {
					t.Fatalf("%s: %s again, or after %s", query, id, before)
				}
				seen[id], before = true, id
			}
			if token = w.Header().Get("X-Next-Token"); token == "" {
				break
			}
		}
		if len(seen) != want {
			t.Errorf("%s: %d of %d", query, len(seen), want)
		}
	}
	if got := array(t, do(h, "GET", "/snapshots", "", "X-API-KEY", otherKey)); len(got) != 0 {
		t.Errorf("another key lists %v", got)
	}
	for query, code := range map[string]string{
		"limit=0": "limit_invalid", "limit=101": "limit_invalid", "nextToken=x": "next_token_invalid", "sandboxID=A": "sandbox_id_invalid",
		"name=a%2Fb%2Fc": "template_reference_invalid", "name=%zz": "query_invalid",
	} {
		wantFailure(t, do(h, "GET", "/snapshots?"+query, ""), http.StatusBadRequest, code, "")
	}
	if len(sandboxes.snapshots) != n {
		t.Errorf("%d snapshots", len(sandboxes.snapshots))
	}
}

func TestRemoveSnapshot(t *testing.T) {
	sandboxes, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	for _, ref := range []string{"s0000000000000000000%3Adefault", "s0000000000000000000:default", "s0000000000000000000", "before"} {
		takeSnapshot(t, h, id, `{"name":"before"}`)
		wantFailure(t, do(h, "DELETE", "/templates/"+ref, "", "X-API-KEY", otherKey), http.StatusNotFound, "template_not_found", "not found")
		if w := do(h, "DELETE", "/templates/"+ref, ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 || len(sandboxes.snapshots) != 0 {
			t.Fatalf("%s: %d %s, %d left", ref, w.Code, w.Body, len(sandboxes.snapshots))
		}
		wantFailure(t, do(h, "DELETE", "/templates/"+ref, ""), http.StatusNotFound, "template_not_found", "not found")
	}
	takeSnapshot(t, h, id, `{"name":"before"}`)
	for ref, status := range map[string]int{
		"base": http.StatusForbidden, "team%2Fbefore": http.StatusNotFound, "before:v1": http.StatusNotFound, "a%2Fb%2Fc": http.StatusBadRequest,
		"..%2F..%2Fetc": http.StatusBadRequest,
	} {
		if w := do(h, "DELETE", "/templates/"+ref, ""); w.Code != status {
			t.Errorf("%s: %d %s", ref, w.Code, w.Body)
		}
	}
	if len(sandboxes.snapshots) != 1 {
		t.Error("a rejected request removed the snapshot")
	}
}

func TestTemplateAliases(t *testing.T) {
	_, h := newAPI(t)
	id := create(t, h, `{"templateID":"base"}`)
	takeSnapshot(t, h, id, `{"name":"before"}`)
	for ref, want := range map[string]map[string]any{
		"base":             {"templateID": templateID, "public": true},
		"before":           {"templateID": "s0000000000000000000", "public": false},
		"before%3Adefault": {"templateID": "s0000000000000000000", "public": false},
	} {
		got := object(t, do(h, "GET", "/templates/aliases/"+ref, ""))
		if got["templateID"] != want["templateID"] || got["public"] != want["public"] {
			t.Errorf("%s: %v", ref, got)
		}
	}
	wantFailure(t, do(h, "GET", "/templates/aliases/before", "", "X-API-KEY", otherKey), http.StatusNotFound, "template_not_found", "")
	wantFailure(t, do(h, "GET", "/templates/aliases/nope", ""), http.StatusNotFound, "template_not_found", "")
}

package crannog

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/crannog/crannog/api"
)

// newRecordingServer starts a server that records its requests, and returns a client of it.
func newRecordingServer(t *testing.T, answer http.HandlerFunc) (*Client, *[]*http.Request) {
	t.Helper()
	var requests []*http.Request
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r)
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	c, err := New(URL(srv.URL), Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	return c, &requests
}

func TestChangesRequests(t *testing.T) {
	c, requests := newRecordingServer(t, func(w http.ResponseWriter, r *http.Request) {
		var out any
		switch r.Method + " " + r.URL.Path {
		case "GET /v1/sandboxes/i1/changes":
			out = api.Changes{Files: 2, Digest: "d"}
		case "POST /v1/sandboxes/i1/apply":
			var in api.Apply
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Digest != "d" || !in.Protected {
				t.Errorf("request to apply: got %+v, error %v", in, err)
			}
			out = api.Applied{Digest: "d", Approval: "a1"}
		case "POST /v1/sandboxes/i1/changes/keep":
			out = api.RetainedChanges{ID: "i1", Files: 1}
		case "GET /v1/changes":
			out = api.RetainedList{Changes: []api.RetainedChanges{{ID: "i1"}}}
		case "DELETE /v1/sandboxes/i1/changes":
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			t.Errorf("unexpected request: %s %s", r.Method, r.URL)
		}
		if err := json.NewEncoder(w).Encode(out); err != nil {
			t.Error(err)
		}
	})
	ctx, sb := t.Context(), &Sandbox{client: c, info: api.Sandbox{ID: "i1"}}
	set, err := sb.Changes(ctx, ChangesOptions{Since: "start", Dir: "/tmp", Paths: []string{"a b", "*.go"}, Text: true})
	if err != nil || set.Files != 2 {
		t.Fatalf("Changes: got %+v, error %v", set, err)
	}
	want := url.Values{"since": {"start"}, "dir": {"/tmp"}, "path": {"a b", "*.go"}, "text": {"true"}}
	if got := (*requests)[0].URL.Query(); got.Encode() != want.Encode() || (*requests)[0].Header.Get("X-API-Key") != "k" {
		t.Errorf("Changes: got query %v, want %v", got, want)
	}
	if done, err := sb.Apply(ctx, api.Apply{Digest: "d", Protected: true}); err != nil || done.Approval != "a1" {
		t.Errorf("Apply: got %+v, error %v", done, err)
	}
	if k, err := sb.KeepChanges(ctx); err != nil || k.Files != 1 {
		t.Errorf("KeepChanges: got %+v, error %v", k, err)
	}
	if list, err := c.KeptChanges(ctx); err != nil || len(list) != 1 {
		t.Errorf("KeptChanges: got %+v, error %v", list, err)
	}
	if err := c.DiscardChanges(ctx, "i1"); err != nil {
		t.Error(err)
	}
}

// ExportOf never reports success for an incomplete export.
func TestExportFailsOnIncompleteResponse(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"complete": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			w.Write([]byte("patch"))
		},
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "50")
			w.Write([]byte("patch"))
		},
		"without a length": func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte("patch"))
			w.(http.Flusher).Flush()
		},
		"refused": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			w.Write([]byte(`{"kind":"denied","code":"export_pending","detail":"x"}`))
		},
	}
	for name, answer := range answers {
		c, requests := newRecordingServer(t, answer)
		var b bytes.Buffer
		err := c.ExportOf(t.Context(), "i1", ExportOptions{Format: "patch", Protected: true, Digest: "d", ChangesOptions: ChangesOptions{Text: true}}, &b)
		switch {
		case name == "complete" && (err != nil || b.String() != "patch"):
			t.Errorf("ExportOf: got %q, error %v", b.String(), err)
		case name == "refused" && (!errors.Is(err, ErrDenied) || Code(err) != "export_pending"):
			t.Errorf("%s: ExportOf: error %v", name, err)
		case name != "complete" && err == nil:
			t.Errorf("%s: no error", name)
		}
		if q := (*requests)[0].URL.Query(); q.Get("format") != "patch" || q.Get("protected") != "true" || q.Get("digest") != "d" || q.Has("text") {
			t.Errorf("%s: ExportOf: got query %v", name, q)
		}
	}
}

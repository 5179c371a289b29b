package v1

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/sandbox"
)

const oneAdvisory = `{"id":"GHSA-1","modified":"2026-01-01T00:00:00Z","affected":[{"package":{"ecosystem":"npm","name":"a"},"versions":["1.0.0"]}]}`

// untouchedBody fails the test if a handler reads it.
type untouchedBody struct{ t *testing.T }

func (b untouchedBody) Read([]byte) (int, error) {
	b.t.Error("the body of a request that is refused was read")
	return 0, io.EOF
}

func TestAdvisoriesAreImportedByLocalCallersOnly(t *testing.T) {
	r := newRig(t)
	state := t.TempDir()
	if err := store.Prepare(state); err != nil {
		t.Fatal(err)
	}
	deps := r.deps
	deps.Advisories = advisory.Open(state)
	r.with(deps)
	for _, route := range [][2]string{{"GET", advisoriesPath}, {"DELETE", advisoriesPath + "/npm"}} {
		if code, p := r.call(route[0], api.Prefix+route[1], "", nil); code != http.StatusForbidden {
			t.Errorf("%s %s with a key: got %d %+v, want 403", route[0], route[1], code, p)
		}
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPut, api.Prefix+advisoriesPath, untouchedBody{t})
	req.Header.Set("X-Api-Key", secret)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if w.Code != http.StatusForbidden {
		t.Errorf("import with a key: got %d %s, want 403", w.Code, w.Body)
	}

	r.caller = sandbox.Principal{Local: true}
	var done api.ImportedAdvisories
	if code, p := r.call(http.MethodPut, api.Prefix+advisoriesPath, oneAdvisory, &done); code != 200 || done.Advisories != 1 || len(done.Databases) != 1 || done.Databases[0].Ecosystem != "npm" {
		t.Fatalf("import: got %d %+v %+v", code, p, done)
	}
	if code, p := r.call(http.MethodPut, api.Prefix+advisoriesPath, `{"id":""}`, nil); code != 400 || p.Code != "advisory_invalid" {
		t.Errorf("import of something else: got %d %+v, want advisory_invalid", code, p)
	}
	var list api.AdvisoryList
	if code, p := r.call(http.MethodGet, api.Prefix+advisoriesPath, "", &list); code != 200 || len(list.Databases) != 1 || list.Databases[0].Advisories != 1 || list.Databases[0].ImportedAt == nil {
		t.Errorf("list: got %d %+v %+v", code, p, list)
	}
	if code, p := r.call(http.MethodDelete, api.Prefix+advisoriesPath+"/npm", "", nil); code != 204 {
		t.Errorf("remove: got %d %+v, want 204", code, p)
	}
	if code, p := r.call(http.MethodDelete, api.Prefix+advisoriesPath+"/npm", "", nil); code != 404 || p.Code != "advisories_missing" {
		t.Errorf("remove again: got %d %+v, want advisories_missing", code, p)
	}
}

// brokenUpload is a body that ends too early.
type brokenUpload struct{ io.Reader }

func (b brokenUpload) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// An upload that ends early must not replace the database with a part of it.
func TestBrokenUploadChangesNothing(t *testing.T) {
	state := t.TempDir()
	if err := store.Prepare(state); err != nil {
		t.Fatal(err)
	}
	databases := advisory.Open(state)
	r := newRig(t)
	deps := r.deps
	deps.Advisories = databases
	r.with(deps)
	r.caller = sandbox.Principal{Local: true}
	req := httptest.NewRequestWithContext(context.Background(), http.MethodPut, api.Prefix+advisoriesPath, brokenUpload{strings.NewReader(oneAdvisory)})
	req.Header.Set("X-Api-Key", secret)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "body_unreadable") {
		t.Errorf("got %d %s, want body_unreadable", w.Code, w.Body)
	}
	if list, err := databases.List(); err != nil || len(list) != 0 {
		t.Errorf("List: got %+v, %v; want nothing", list, err)
	}
	if err := databases.Remove(packages.NPM); err == nil {
		t.Error("there is a database after a broken upload")
	}
}

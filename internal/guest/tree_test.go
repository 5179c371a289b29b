package guest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest"
)

func TestFileEventsAreIngested(t *testing.T) {
	b, dir := newTestGuest(t, nil), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("AAAA"), 0o640); err != nil {
		t.Fatal(err)
	}
	ask := func(path string, body any, want int) []byte {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		w := b.call(t, "POST", path, bytes.NewReader(text), guest.ControlHeader, control)
		if w.Code != want {
			t.Fatalf("%s %s: %d %s", path, text, w.Code, w.Body)
		}
		return w.Body.Bytes()
	}
	all, err := changeset.ReadTree(bytes.NewReader(ask(guest.PathTree, changeset.TreeRequest{Dir: dir, Sums: true, SumBytes: 100}, 200)), changeset.Bounds{})
	if err != nil || len(all) != 1 || all[0].Path != "a" || all[0].Mode != 0o640 || all[0].Size != 4 || all[0].Sum == "" {
		t.Fatalf("got %+v, %v", all, err)
	}
	into, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	pack := ask(guest.PathPack, changeset.PackRequest{Dir: dir, Paths: [][]byte{[]byte("a"), []byte("none")}, FileBytes: 100}, 200)
	if _, err := changeset.Extract(bytes.NewReader(pack), into, []changeset.Change{{Path: "a", Op: changeset.Created, New: &all[0]}}, nil, changeset.Bounds{}); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "[]", `{"dir":5}`, `{"dir":"/","follow":true}`} {
		for _, path := range []string{guest.PathTree, guest.PathPack} {
			if w := b.call(t, "POST", path, strings.NewReader(body), guest.ControlHeader, control); w.Code != 400 {
				t.Errorf("%s %q: %d", path, body, w.Code)
			}
		}
	}
	if w := b.call(t, "GET", guest.PathTree, nil, guest.ControlHeader, control); w.Code != 404 {
		t.Errorf("GET: %d", w.Code)
	}
}

// A directory that cannot be listed is an error, or the list is cut off so that no client takes it
// for complete.
func TestIncompleteListIsAnError(t *testing.T) {
	b, dir := newTestGuest(t, nil), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	upwards, absolute := `"Li4vLi4vZXRjL3Bhc3N3ZA=="`, `"L2V0Yy9wYXNzd2Q="`
	for _, body := range []string{`{"dir":"relative"}`, `{"dir":"/no/such"}`, `{"dir":"` + dir + `","paths":[` + upwards + `]}`, `{"dir":"` + dir + `","paths":[` + absolute + `]}`} {
		for _, path := range []string{guest.PathTree, guest.PathPack} {
			if w := b.call(t, "POST", path, strings.NewReader(body), guest.ControlHeader, control); w.Code != 409 {
				t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
			}
		}
	}
	defer func() {
		if r, _ := recover().(error); !errors.Is(r, http.ErrAbortHandler) {
			t.Errorf("the answer was not cut: %v", r)
		}
	}()
	w := b.call(t, "POST", guest.PathPack, strings.NewReader(`{"dir":"`+dir+`","file_bytes":1048576,"paths":["YQ==",`+upwards+`]}`), guest.ControlHeader, control)
	t.Errorf("in part: %d, %d bytes", w.Code, w.Body.Len())
}

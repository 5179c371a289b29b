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

func TestTreeAndPack(t *testing.T) {
	b, dir := newTestGuest(t, nil), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("AAAA"), 0o640); err != nil {
		t.Fatal(err)
	}
	call := func(path string, body any, want int) []byte {
		t.Helper()
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		w := b.call(t, "POST", path, bytes.NewReader(text), guest.ControlHeader, control)
		if w.Code != want {
			t.Fatalf("%s %s: got %d %s, want %d", path, text, w.Code, w.Body, want)
		}
		return w.Body.Bytes()
	}
	entries, err := changeset.ReadTree(bytes.NewReader(call(guest.PathTree, changeset.TreeRequest{Dir: dir, Sums: true, SumBytes: 100}, 200)), changeset.Bounds{})
	if err != nil || len(entries) != 1 || entries[0].Path != "a" || entries[0].Mode != 0o640 || entries[0].Size != 4 || entries[0].Sum == "" {
		t.Fatalf("tree: got %+v, %v, want the file a", entries, err)
	}
	into, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	pack := call(guest.PathPack, changeset.PackRequest{Dir: dir, Paths: [][]byte{[]byte("a"), []byte("none")}, FileBytes: 100}, 200)
	if _, err := changeset.Extract(bytes.NewReader(pack), into, []changeset.Change{{Path: "a", Op: changeset.Created, New: &entries[0]}}, nil, changeset.Bounds{}); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "[]", `{"dir":5}`, `{"dir":"/","follow":true}`} {
		for _, path := range []string{guest.PathTree, guest.PathPack} {
			if w := b.call(t, "POST", path, strings.NewReader(body), guest.ControlHeader, control); w.Code != 400 {
				t.Errorf("%s %q: got status %d, want 400", path, body, w.Code)
			}
		}
	}
	if w := b.call(t, "GET", guest.PathTree, nil, guest.ControlHeader, control); w.Code != 404 {
		t.Errorf("GET of the tree: got status %d, want 404", w.Code)
	}
}

// If a directory cannot be read, the answer is an error. If it has begun, the connection is cut, so
// that no client treats the answer as complete.
func TestIncompleteAnswerIsCut(t *testing.T) {
	b, dir := newTestGuest(t, nil), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	upwards, absolute := `"Li4vLi4vZXRjL3Bhc3N3ZA=="`, `"L2V0Yy9wYXNzd2Q="`
	for _, body := range []string{`{"dir":"relative"}`, `{"dir":"/no/such"}`, `{"dir":"` + dir + `","paths":[` + upwards + `]}`, `{"dir":"` + dir + `","paths":[` + absolute + `]}`} {
		for _, path := range []string{guest.PathTree, guest.PathPack} {
			if w := b.call(t, "POST", path, strings.NewReader(body), guest.ControlHeader, control); w.Code != 409 {
				t.Errorf("%s %s: got %d %s, want 409", path, body, w.Code, w.Body)
			}
		}
	}
	defer func() {
		if r, _ := recover().(error); !errors.Is(r, http.ErrAbortHandler) {
			t.Errorf("got panic %v, want ErrAbortHandler", r)
		}
	}()
	w := b.call(t, "POST", guest.PathPack, strings.NewReader(`{"dir":"`+dir+`","file_bytes":1048576,"paths":["YQ==",`+upwards+`]}`), guest.ControlHeader, control)
	t.Errorf("an incomplete answer was sent as complete: status %d, %d bytes", w.Code, w.Body.Len())
}

package files_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/files"
)

// compose sends a request to join files.
func compose(home, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	service(home).Compose(w, httptest.NewRequest(http.MethodPost, "/files/compose", strings.NewReader(body)))
	return w
}

func TestComposeJoinsAndRemovesSources(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "p1"), "one ")
	write(t, filepath.Join(home, "p2"), "")
	write(t, filepath.Join(home, "dir/p3"), "three")
	write(t, filepath.Join(home, "out"), "old content, longer than the parts")
	w := compose(home, `{"source_paths":["p1","~/p2","dir/p3"],"destination":"out"}`)
	var entry files.Entry
	if err := json.Unmarshal(w.Body.Bytes(), &entry); err != nil || w.Code != http.StatusOK {
		t.Fatalf("compose: got %d %s, %v, want 200 and an entry", w.Code, w.Body, err)
	}
	if entry.Path != filepath.Join(home, "out") || entry.Name != "out" || entry.Type != "file" {
		t.Errorf("entry: got %+v", entry)
	}
	if got, err := os.ReadFile(filepath.Join(home, "out")); err != nil || string(got) != "one three" {
		t.Errorf("destination: got %q, %v", got, err)
	}
	for _, name := range []string{"p1", "p2", "dir/p3"} {
		if _, err := os.Lstat(filepath.Join(home, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
}

// A failed request names the file that caused the error, and removes no part, so that the client
// can retry.
func TestFailedComposeRemovesNothing(t *testing.T) {
	home := t.TempDir()
	write(t, filepath.Join(home, "p1"), "one")
	write(t, filepath.Join(home, "d/f"), "x")
	if err := unix.Mkfifo(filepath.Join(home, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]struct {
		status int
		text   string
	}{
		`{`: {400, "malformed JSON body"},
		`{"source_paths":[],"destination":"out"}`:                                   {400, "source_paths and destination are required"},
		`{"source_paths":["p1"]}`:                                                   {400, "source_paths and destination are required"},
		`{"source_paths":["p1","none"],"destination":"out"}`:                        {404, "/none' does not exist"},
		`{"source_paths":["p1","d"],"destination":"out"}`:                           {400, "/d' is a directory"},
		`{"source_paths":["p1","pipe"],"destination":"out"}`:                        {400, "/pipe' is not a regular file"},
		`{"source_paths":["p1"],"destination":"pipe"}`:                              {400, "/pipe' is not a regular file"},
		`{"source_paths":["p1"],"destination":"d"}`:                                 {400, "/d' is a directory"},
		`{"source_paths":["p1"],"destination":"/dev/null"}`:                         {400, "/dev/null' is not a regular file"},
		`{"source_paths":["p1","./p1"],"destination":"out"}`:                        {400, "'./p1' is given more than once"},
		`{"source_paths":["p1"],"destination":"p1"}`:                                {400, "'p1' is given more than once"},
		`{"source_paths":["p1\u0000"],"destination":"out"}`:                         {400, "NUL byte"},
		`{"source_paths":["p1"],"destination":"out","username":"mallory"}`:          {401, "invalid username: 'mallory'"},
		`{"source_paths":["` + strings.Repeat("x", 1<<20) + `"],"destination":"o"}`: {400, "malformed JSON body"},
	} {
		w := compose(home, body)
		text := strings.ReplaceAll(w.Body.String(), home, "")
		if w.Code != want.status || !strings.Contains(text, strings.Replace(want.text, "'./p1'", "'/p1'", 1)) && !strings.Contains(text, strings.Replace(want.text, "'p1'", "'/p1'", 1)) {
			t.Errorf("compose %.100s: got %d %.200s, want %d %s", body, w.Code, text, want.status, want.text)
		}
		if got, err := os.ReadFile(filepath.Join(home, "p1")); err != nil || string(got) != "one" {
			t.Fatalf("%.100s: the source p1 has %q, %v", body, got, err)
		}
	}
}

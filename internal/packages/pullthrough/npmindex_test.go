package pullthrough_test

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

// counting is a storage that counts how often a content is read.
type counting struct {
	*storage
	finds map[string]int
}

func (c *counting) Find(key string) (store.Entry, *os.File, error) {
	c.finds[key]++
	return c.storage.Find(key)
}

// The document of a package is read once for all its files, until it is old or has changed.
func TestDocumentIsReadOnceForItsFiles(t *testing.T) {
	r, s, now := newRegistry(t), &counting{newStorage(t), map[string]int{}}, newClock()
	r.npm("a", version{"1.0.0", "one", 90 * day}, version{"2.0.0", "two", 90 * day})
	c := pullthrough.New(s, now.now)
	file := func(c *pullthrough.Cache, v, want string, reads int) {
		t.Helper()
		before := s.finds[r.URL+"/a"]
		if text, _, err := get(t, c, r, "/a/-/a-"+v+".tgz"); err != nil || text != want || s.finds[r.URL+"/a"] != before+reads {
			t.Errorf("%s: got %q, %v after %d reads of the document, want %q after %d", v, text, err, s.finds[r.URL+"/a"]-before, want, reads)
		}
	}
	if _, _, err := get(t, c, r, "/a"); err != nil {
		t.Fatal(err)
	}
	file(c, "1.0.0", "one", 0)
	file(c, "2.0.0", "two", 0)
	c = pullthrough.New(s, now.now)
	file(c, "1.0.0", "one", 1) // a new process
	file(c, "2.0.0", "two", 0)
	// The registry has another document by now, which counts as soon as the old one may not be used.
	r.npm("a", version{"1.0.0", "one", 90 * day}, version{"3.0.0", "three", 90 * day})
	file(c, "2.0.0", "two", 0)
	now.pass(pullthrough.DocumentLife + time.Minute)
	file(c, "3.0.0", "three", 1)
	if _, _, err := get(t, c, r, "/a/-/a-2.0.0.tgz"); err == nil {
		t.Error("a version that the registry has removed is served")
	}
	// The gate judges each request.
	deny := func(q *pullthrough.Request) {
		q.Gate = func(a packages.Artifact, _ packages.Version, known bool) *packages.Denial {
			if !known {
				return nil
			}
			return &packages.Denial{Reason: "denied"}
		}
	}
	if _, _, err := get(t, c, r, "/a/-/a-3.0.0.tgz", deny); err == nil {
		t.Error("a denied version is served from the index")
	}
}

// BenchmarkFileOfLargeDocument is a file from the cache whose package has a document of two
// megabytes, as usual ones of webpack and eslint.
func BenchmarkFileOfLargeDocument(b *testing.B) {
	state := b.TempDir()
	st, err := store.Open(state, 0)
	if err != nil {
		b.Fatal(err)
	}
	dir, err := store.OpenDir(state)
	if err != nil {
		b.Fatal(err)
	}
	defer dir.Close()
	r := newRegistry(b)
	var list []version
	for n := range 400 {
		list = append(list, version{fmt.Sprintf("1.%d.0", n), "content", 90 * day})
	}
	r.npm("a", list...)
	r.pad("/a", 2<<20)
	c := pullthrough.New(&storage{store.NewReader(dir), st, state}, time.Now)
	for b.Loop() {
		a, err := c.Serve(b.Context(), pullthrough.Request{Ecosystem: packages.NPM, Origin: r.URL, Path: "/a/-/a-1.7.0.tgz", Gate: allowAll, Upstream: r})
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, a.Body)
		a.Body.Close()
	}
}

// pad makes a document larger by a field.
func (r *registry) pad(path string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := strings.TrimSuffix(string(r.files[path]), "}")
	r.files[path] = []byte(text + `,"readme":"` + strings.Repeat("a ", n/2) + `"}`)
}

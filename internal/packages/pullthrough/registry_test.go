package pullthrough_test

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

// registry is an HTTP server of a registry, which counts its requests.
type registry struct {
	*httptest.Server
	mu       sync.Mutex
	files    map[string][]byte
	requests map[string]int // by path
	// before is called before an answer.
	before   func()
	modified map[string]time.Time // by path
	kind     string               // Content-Type of all answers
	// handle answers requests that are for no file. It returns false for others.
	handle func(w http.ResponseWriter, r *http.Request) bool
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	r := &registry{files: map[string][]byte{}, requests: map[string]int{}, modified: map[string]time.Time{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests[req.URL.EscapedPath()]++
		text, ok := r.files[req.URL.EscapedPath()]
		at, dated := r.modified[req.URL.EscapedPath()]
		r.mu.Unlock()
		if r.before != nil {
			r.before()
		}
		if !ok && r.handle != nil && r.handle(w, req) {
			return
		}
		if !ok {
			http.NotFound(w, req)
			return
		}
		if dated {
			w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
		}
		if r.kind != "" {
			w.Header().Set("Content-Type", r.kind)
		}
		_, _ = w.Write(text)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *registry) set(path string, text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[path] = text
}

func (r *registry) total() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.requests {
		n += k
	}
	return n
}

type version struct {
	id      string
	content string
	age     time.Duration
}

// npm publishes versions of a package.
func (r *registry) npm(name string, list ...version) {
	versions, times := map[string]any{}, map[string]string{}
	latest := ""
	for _, v := range list {
		path := "/" + name + "/-/" + name + "-" + v.id + ".tgz"
		sum := sha512.Sum512([]byte(v.content))
		versions[v.id] = map[string]any{"name": name, "version": v.id, "dist": map[string]string{
			"tarball": r.URL + path, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}}
		times[v.id] = time.Now().Add(-v.age).UTC().Format(time.RFC3339)
		r.set(path, []byte(v.content))
		latest = v.id
	}
	text, err := json.Marshal(map[string]any{"name": name, "versions": versions, "time": times, "dist-tags": map[string]string{"latest": latest}})
	if err != nil {
		panic(err)
	}
	r.set("/"+name, text)
}

// Get implements pullthrough.Upstream.
func (r *registry) Get(ctx context.Context, url, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return http.DefaultTransport.RoundTrip(req)
}

// storage is a store and its reader.
type storage struct {
	*store.Reader
	*store.Store
	dir string
}

func newStorage(t *testing.T) *storage {
	t.Helper()
	state := t.TempDir()
	s, err := store.Open(state, 0)
	if err != nil {
		t.Fatal(err)
	}
	trust(t, state, archiveKey())
	dir, err := store.OpenDir(state)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return &storage{store.NewReader(dir), s, filepath.Join(state)}
}

// Create implements pullthrough.Storage.
func (s *storage) Create() (*os.File, error) { return os.CreateTemp(s.dir, "fetched-*") }

// Keep implements pullthrough.Storage.
func (s *storage) Keep(_ context.Context, e store.Entry, f *os.File) error {
	return s.Put(e, io.NewSectionReader(f, 0, e.Size))
}

// allowAll is a gate that denies nothing.
func allowAll(packages.Artifact, packages.Version, bool) *packages.Denial { return nil }

// get requests a path of a registry from a cache.
func get(t *testing.T, c *pullthrough.Cache, r *registry, path string, change ...func(*pullthrough.Request)) (string, pullthrough.Answer, error) {
	t.Helper()
	req := pullthrough.Request{Ecosystem: packages.NPM, Origin: r.URL, Path: path, Gate: allowAll, Upstream: r}
	for _, do := range change {
		do(&req)
	}
	a, err := c.Serve(t.Context(), req)
	if err != nil || a.Pass {
		return "", a, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || int64(len(text)) != a.Size {
		t.Fatalf("%s: got %d bytes (%v), want %d", path, len(text), err, a.Size)
	}
	return string(text), a, nil
}

// tamper changes all files whose path has a part.
func (r *registry) tamper(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, text := range r.files {
		if strings.Contains(path, part) {
			r.files[path] = append([]byte("# "), text...)
		}
	}
}

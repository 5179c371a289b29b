package registry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
)

// testRegistry is a registry in this process whose answers a test can change.
type testRegistry struct {
	name      string
	inner     http.Handler
	mu        sync.Mutex
	fault     func(w http.ResponseWriter, r *http.Request) bool // reports whether it has answered
	requested []string
}

func (h *testRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requested = append(h.requested, strings.TrimSpace(r.Method+" "+r.URL.Path+" "+r.Header.Get("Range")))
	broken := h.fault
	h.mu.Unlock()
	if broken != nil && broken(w, r) {
		return
	}
	h.inner.ServeHTTP(w, r)
}

func (h *testRegistry) setFault(f func(http.ResponseWriter, *http.Request) bool) {
	h.mu.Lock()
	h.fault, h.requested = f, nil
	h.mu.Unlock()
}

func (h *testRegistry) requests(text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, a := range h.requested {
		if strings.Contains(a, text) {
			n++
		}
	}
	return n
}

func newTestRegistry(t *testing.T) *testRegistry {
	t.Helper()
	h := &testRegistry{inner: server.New(server.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	h.name = strings.TrimPrefix(s.URL, "http://")
	return h
}

// publish gives an image a tag.
func publish(t *testing.T, h *testRegistry, tag string) v1.Image {
	t.Helper()
	img, err := random.Image(200<<10, 3)
	if err != nil {
		t.Fatal(err)
	}
	c, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c.OS, c.Architecture = "linux", manifest.Host().Architecture
	if img, err = mutate.ConfigFile(img, c); err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(reference(t, h.name+"/"+tag), img); err != nil {
		t.Fatal(err)
	}
	return img
}

// reference parses the name of an image.
func reference(t *testing.T, text string) name.Reference {
	t.Helper()
	ref, err := registry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// client returns a client that may use these registries without TLS.
func client(insecure ...string) *registry.Client {
	return registry.New(registry.Options{
		Rules: registry.Rules{Insecure: insecure}, Keychain: authn.NewMultiKeychain(), Stall: 300 * time.Millisecond, Tries: 3,
	})
}

// store opens an empty blob store.
func store(t *testing.T) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readImage reads a complete image from a store, which verifies each digest.
func readImage(t *testing.T, s *blob.Store, digest v1.Hash) {
	t.Helper()
	img, err := manifest.Load(s, digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range img.Blobs() {
		if _, err := s.Read(d, 1<<30); err != nil {
			t.Error(err)
		}
	}
}

func ignore(registry.Event) {}

func TestPullAndPush(t *testing.T) {
	h, blobs := newTestRegistry(t), store(t)
	img := publish(t, h, "app:1")
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	done := map[v1.Hash]int64{}
	pulled, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), blobs, func(e registry.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Done < done[e.Digest] || e.Done > e.Total {
			t.Errorf("progress went from %d to %+v", done[e.Digest], e)
		}
		done[e.Digest] = e.Done
	})
	if err != nil || pulled.Manifest != want || pulled.Resolved != want || pulled.Source != h.name {
		t.Fatalf("Pull: got %+v, error %v, want %s", pulled, err, want)
	}
	if len(done) != 4 {
		t.Errorf("Pull reported %d blobs, want 4", len(done))
	}
	readImage(t, blobs, want)

	stored, err := manifest.Load(blobs, want)
	if err != nil {
		t.Fatal(err)
	}
	if err := client(h.name).Push(t.Context(), reference(t, h.name+"/copy:2"), stored, blobs, ignore); err != nil {
		t.Fatal(err)
	}
	again, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/copy@"+want.String()), manifest.Host(), store(t), ignore)
	if err != nil || again.Manifest != want {
		t.Errorf("Pull of the pushed image: got %+v, error %v", again, err)
	}
}

// onBlobs returns a fault that answers requests for blobs with do, which gets the correct content.
func onBlobs(do func(w http.ResponseWriter, r *http.Request, content []byte) bool, inner http.Handler) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		rec := httptest.NewRecorder()
		plain := r.Clone(r.Context())
		plain.Header.Del("Range")
		inner.ServeHTTP(rec, plain)
		return do(w, r, rec.Body.Bytes())
	}
}

func TestPullContinuesInterruptedBlob(t *testing.T) {
	for name, ranges := range map[string]bool{"with ranges": true, "without": false} {
		h, blobs := newTestRegistry(t), store(t)
		img := publish(t, h, "app:1")
		want, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		tries := map[string]int{}
		h.setFault(onBlobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
			mu.Lock()
			tries[r.URL.Path]++
			first := tries[r.URL.Path] == 1
			mu.Unlock()
			if first {
				w.Header().Set("Content-Length", fmt.Sprint(len(content)))
				_, _ = w.Write(content[:len(content)/2])
				return true // the server closes a connection before its announced length
			}
			if !ranges {
				return false
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
			return true
		}, h.inner))
		pulled, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), blobs, ignore)
		if err != nil || pulled.Manifest != want {
			t.Errorf("%s: Pull: got %+v, error %v", name, pulled, err)
			continue
		}
		readImage(t, blobs, want)
		if continued := h.requests("bytes="); continued != 4 {
			t.Errorf("%s: got %d requests with a range, want 4", name, continued)
		}
	}
}

func TestPullRejectsWrongContent(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter, content []byte)
		code   string
	}{
		"other bytes": {func(w http.ResponseWriter, content []byte) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), len(content)))
		}, blob.CodeWrong},
		"more than stated": {func(w http.ResponseWriter, content []byte) {
			_, _ = w.Write(append(content, "more"...))
		}, blob.CodeWrong},
		"less than stated": {func(w http.ResponseWriter, content []byte) { _, _ = w.Write(content[:10]) }, "registry_short"},
		"nothing":          {func(w http.ResponseWriter, _ []byte) { w.WriteHeader(http.StatusInternalServerError) }, "registry_failed"},
	} {
		h, blobs := newTestRegistry(t), store(t)
		publish(t, h, "app:1")
		h.setFault(onBlobs(func(w http.ResponseWriter, _ *http.Request, content []byte) bool { c.answer(w, content); return true }, h.inner))
		_, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), blobs, ignore)
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: Pull: error %v", name, err)
		}
		if list, err := blobs.List(); err != nil || len(list) != 0 {
			t.Errorf("%s: got blobs %v, error %v, want none", name, list, err)
		}
	}
}

func TestPullFailsWhenRegistryStalls(t *testing.T) {
	h := newTestRegistry(t)
	publish(t, h, "app:1")
	release := make(chan struct{})
	defer close(release)
	h.setFault(onBlobs(func(w http.ResponseWriter, r *http.Request, content []byte) bool {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
		return true
	}, h.inner))
	_, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), store(t), ignore)
	if fault.CodeOf(err) != "registry_stalled" {
		t.Errorf("Pull: got %v, want registry_stalled", err)
	}
}

func TestPullUsesOneManifest(t *testing.T) {
	h, blobs := newTestRegistry(t), store(t)
	img := publish(t, h, "app:1")
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	moved, err := publish(t, h, "app:2").RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	h.setFault(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			once.Do(func() {
				put := httptest.NewRequest(http.MethodPut, "/v2/app/manifests/1", bytes.NewReader(moved))
				put.Header.Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
				h.inner.ServeHTTP(httptest.NewRecorder(), put)
			})
		}
		return false
	})
	pulled, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), blobs, ignore)
	if err != nil || pulled.Manifest != want {
		t.Fatalf("Pull: got %+v, error %v", pulled, err)
	}
	readImage(t, blobs, want)
	if now, err := remote.Head(reference(t, h.name+"/app:1")); err != nil || now.Digest == want {
		t.Errorf("control: the tag did not move: got %v, error %v", now, err)
	}
	// An image that is pinned by its digest is rejected if its content differs.
	other := publish(t, h, "other:1")
	raw, err := other.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	h.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/manifests/") {
			return false
		}
		w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		_, _ = w.Write(raw)
		return true
	})
	if _, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app@"+want.String()), manifest.Host(), store(t), ignore); err == nil {
		t.Error("another manifest was accepted for the pinned one")
	}
}

// P55: a registry that the rules do not allow is not contacted at all.
func TestRulesAreCheckedBeforeRequests(t *testing.T) {
	h := newTestRegistry(t)
	publish(t, h, "org/app:1")
	h.setFault(nil)
	for _, c := range []struct {
		allow   string
		allowed bool
	}{
		{"", true}, {h.name, true}, {h.name + "/org/*", true}, {h.name + "/org/app", true},
		{"ghcr.io", false}, {h.name + "/other/*", false}, {h.name + "/org", false}, {h.name + "/org/ap", false},
	} {
		allow, err := registry.ParseList(c.allow)
		if err != nil {
			t.Fatal(err)
		}
		cl := registry.New(registry.Options{Rules: registry.Rules{Allow: allow, Insecure: []string{h.name}}, Keychain: authn.NewMultiKeychain()})
		_, err = cl.Pull(t.Context(), reference(t, h.name+"/org/app:1"), manifest.Host(), store(t), ignore)
		if c.allowed && err != nil || !c.allowed && (fault.CodeOf(err) != "registry_not_allowed" || h.requests("") != 0) {
			t.Errorf("rule %q: got error %v, %d requests", c.allow, err, h.requests(""))
		}
		h.setFault(nil)
	}
}

func TestPlainHTTPNeedsRule(t *testing.T) {
	h := newTestRegistry(t)
	publish(t, h, "app:1")
	h.setFault(nil)
	_, err := client().Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), store(t), ignore)
	if err == nil || h.requests("") != 0 {
		t.Errorf("Pull over plain HTTP: got error %v, requests %v, want an error and no request", err, h.requested)
	}
	// A redirection to plain HTTP is refused too.
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://"+h.name+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer secure.Close()
	named := strings.TrimPrefix(secure.URL, "https://")
	if _, err := client(named).Pull(t.Context(), reference(t, named+"/app:1"), manifest.Host(), store(t), ignore); err == nil || h.requests("") != 0 {
		t.Errorf("Pull with a redirection to plain HTTP: got error %v, requests %v, want an error and no request", err, h.requested)
	}
}

func TestMirrors(t *testing.T) {
	origin, mirror := newTestRegistry(t), newTestRegistry(t)
	img := publish(t, origin, "app:1")
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	cl := registry.New(registry.Options{Keychain: authn.NewMultiKeychain(), Rules: registry.Rules{
		Insecure: []string{origin.name, mirror.name}, Mirrors: map[string][]string{origin.name: {mirror.name}},
	}})
	pulled, err := cl.Pull(t.Context(), reference(t, origin.name+"/app:1"), manifest.Host(), store(t), ignore)
	if err != nil || pulled.Manifest != want || pulled.Source != origin.name || mirror.requests("/manifests/") == 0 {
		t.Errorf("Pull with a mirror without the image: got %+v, error %v", pulled, err)
	}
	if err := remote.Write(reference(t, mirror.name+"/app:1"), img); err != nil {
		t.Fatal(err)
	}
	origin.setFault(nil)
	pulled, err = cl.Pull(t.Context(), reference(t, origin.name+"/app:1"), manifest.Host(), store(t), ignore)
	if err != nil || pulled.Manifest != want || pulled.Source != mirror.name || origin.requests("") != 0 {
		t.Errorf("Pull with a mirror with the image: got %+v, error %v", pulled, err)
	}
}

func TestRegistryErrorCodes(t *testing.T) {
	h := newTestRegistry(t)
	publish(t, h, "app:1")
	for status, code := range map[int]string{
		http.StatusNotFound: "image_not_found", http.StatusForbidden: "registry_denied", http.StatusTooManyRequests: "registry_rate_limit",
	} {
		h.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.WriteHeader(status)
			return true
		})
		if _, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), store(t), ignore); fault.CodeOf(err) != code {
			t.Errorf("Pull(%d): error %v", status, err)
		}
	}
	if _, err := client().Pull(t.Context(), reference(t, "127.0.0.1:1/app:1"), manifest.Host(), store(t), ignore); fault.KindOf(err) != fault.Unavailable && fault.KindOf(err) != fault.Denied {
		t.Errorf("Pull without a server: got %v", err)
	}
}

func TestParseReference(t *testing.T) {
	for text, want := range map[string]string{
		"python": "python:latest", "python:3.12-slim": "python:3.12-slim", "docker.io/library/python": "python:latest", "org/app:1": "org/app:1",
		"ghcr.io/org/app:1": "ghcr.io/org/app:1", "python@sha256:" + strings.Repeat("a", 64): "python@sha256:" + strings.Repeat("a", 64),
	} {
		if got := registry.Familiar(reference(t, text)); got != want {
			t.Errorf("Familiar(%s): got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "Upper/Case", "a b", "../../etc", "python:", strings.Repeat("a", 600)} {
		if _, err := registry.Parse(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("Parse(%q): error %v, want kind Invalid", text, err)
		}
	}
	if _, err := registry.ParseMirrors("docker.io=mirror.example:5000, ghcr.io=m"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"docker.io", "=m", "a=", "a=b c"} {
		if _, err := registry.ParseMirrors(text); err == nil {
			t.Errorf("ParseMirrors(%q): got no error", text)
		}
	}
}

func TestPullRejectsRedirectToPrivateNetwork(t *testing.T) {
	for _, to := range []string{"https://10.0.0.1/secret", "https://169.254.169.254/latest/meta-data", "https://[::1]/", "https://[::ffff:192.168.0.1]/"} {
		h := newTestRegistry(t)
		publish(t, h, "app:1")
		h.setFault(onBlobs(func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
			return true
		}, h.inner))
		_, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/app:1"), manifest.Host(), store(t), ignore)
		if fault.CodeOf(err) != "registry_redirect" {
			t.Errorf("Pull(%s): error %v", to, err)
		}
	}
}

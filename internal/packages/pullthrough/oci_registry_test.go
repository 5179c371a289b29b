package pullthrough_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// imageRegistry is a registry of images, with the cache's way to it. The policy forbids the hosts in
// denied.
type imageRegistry struct {
	*httptest.Server
	t      *testing.T
	denied map[string]bool
	// fault changes an answer. It returns true if it has answered.
	fault func(w http.ResponseWriter, r *http.Request, plain http.Handler) bool

	mu    sync.Mutex
	log   []string          // METHOD PATH of each request
	sent  map[string]string // the last token by host
	asked []string          // the URLs of all requests of the cache
}

func newImageRegistry(t *testing.T) *imageRegistry {
	t.Helper()
	r := &imageRegistry{t: t, denied: map[string]bool{}, sent: map[string]string{}}
	plain := ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)))
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.log = append(r.log, req.Method+" "+req.URL.Path)
		fault := r.fault
		r.mu.Unlock()
		if fault == nil || !fault(w, req, plain) {
			plain.ServeHTTP(w, req)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *imageRegistry) host() string { return strings.TrimPrefix(r.URL, "http://") }

// requests returns the requests since the last call.
func (r *imageRegistry) requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.log
	r.log = nil
	return out
}

func (r *imageRegistry) inject(fault func(w http.ResponseWriter, q *http.Request, plain http.Handler) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// Get implements pullthrough.Upstream.
func (r *imageRegistry) Get(ctx context.Context, address, accept string) (*http.Response, error) {
	return r.Send(ctx, pullthrough.Fetch{Method: http.MethodGet, URL: address, Accept: accept})
}

var errPolicy = errors.New("the policy denies the host")

// Send implements pullthrough.Authorized as the egress gateway does.
func (r *imageRegistry) Send(ctx context.Context, f pullthrough.Fetch) (*http.Response, error) {
	origin := ""
	for range 5 {
		at, err := url.Parse(f.URL)
		if err != nil {
			return nil, err
		}
		if r.denied[at.Host] {
			return nil, fmt.Errorf("%w %s", errPolicy, at.Host)
		}
		if here := at.Scheme + "://" + at.Host; origin == "" {
			origin = here
		} else if here != origin {
			f.Token = ""
		}
		req, err := http.NewRequestWithContext(ctx, f.Method, f.URL, http.NoBody)
		if err != nil {
			return nil, err
		}
		if f.Accept != "" {
			req.Header.Set("Accept", f.Accept)
		}
		if f.Token != "" {
			req.Header.Set("Authorization", "Bearer "+f.Token)
		}
		r.mu.Lock()
		r.asked = append(r.asked, f.URL)
		r.sent[at.Host] = f.Token
		r.mu.Unlock()
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || resp.StatusCode < 300 || resp.StatusCode > 399 {
			return resp, err
		}
		resp.Body.Close()
		to, err := at.Parse(resp.Header.Get("Location"))
		if err != nil {
			return nil, err
		}
		f.URL = to.String()
	}
	return nil, errors.New("too many redirects")
}

// push publishes an index for two platforms under tags.
func (r *imageRegistry) push(repo string, tags ...string) v1.ImageIndex {
	r.t.Helper()
	index, err := random.Index(2048, 3, 2)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, tag := range tags {
		ref, err := name.NewTag(r.host() + "/" + repo + ":" + tag)
		if err == nil {
			err = remote.WriteIndex(ref, index)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	r.requests()
	return index
}

// parts returns the digests of an index, of its first image, and of a layer of that.
func parts(t *testing.T, index v1.ImageIndex) (top, image, layer string) {
	t.Helper()
	sum, err := index.Digest()
	list, err2 := index.IndexManifest()
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	first, err := index.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := first.Layers()
	if err != nil {
		t.Fatal(err)
	}
	hash, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return sum.String(), list.Manifests[0].Digest.String(), hash.String()
}

// readIndex reads everything of an index. The library compares each content with its digest.
func readIndex(t *testing.T, index v1.ImageIndex) {
	t.Helper()
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := image.ConfigFile(); err != nil {
			t.Fatal(err)
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layers {
			content, err := l.Compressed()
			if err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, content)
			if err = errors.Join(err, content.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// clock is a time that tests set.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// read requests a path of the registry from a cache.
func (r *imageRegistry) read(c *pullthrough.Cache, path string, change ...func(*pullthrough.Request)) (string, pullthrough.Answer, error) {
	r.t.Helper()
	req := pullthrough.Request{Ecosystem: packages.OCI, Origin: r.URL, Path: path, Gate: allowAll, Upstream: r}
	for _, do := range change {
		do(&req)
	}
	a, err := c.Serve(r.t.Context(), req)
	if err != nil || a.Pass {
		return "", a, err
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil || int64(len(text)) != a.Size {
		r.t.Fatalf("%s: got %d bytes (%v), want %d", path, len(text), err, a.Size)
	}
	return string(text), a, nil
}

// imageFront answers clients from a cache, as the egress gateway does.
func (r *imageRegistry) front(c *pullthrough.Cache) *httptest.Server {
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet && q.Method != http.MethodHead {
			http.Error(w, "only downloads are served here", http.StatusMethodNotAllowed)
			return
		}
		a, err := c.Serve(q.Context(), pullthrough.Request{
			Ecosystem: packages.OCI, Origin: r.URL, Path: q.URL.EscapedPath(), Gate: allowAll, Upstream: r, Accept: q.Header.Values("Accept"),
		})
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); ok {
			http.Error(w, stop.Reason, stop.Status)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if a.Pass {
			r.pass(w, q)
			return
		}
		defer a.Body.Close()
		w.Header().Set("Content-Type", a.Type)
		w.Header().Set("Content-Length", strconv.FormatInt(a.Size, 10))
		w.Header().Set("Docker-Content-Digest", a.Digest)
		if q.Method == http.MethodGet {
			_, _ = io.Copy(w, a.Body)
		}
	}))
	r.t.Cleanup(front.Close)
	return front
}

// pass forwards a request that is for no package.
func (r *imageRegistry) pass(w http.ResponseWriter, q *http.Request) {
	out, err := http.NewRequestWithContext(q.Context(), q.Method, r.URL+q.URL.RequestURI(), http.NoBody)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header = q.Header
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	maps.Copy(w.Header(), resp.Header)
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body)
}

// refusedBy fails unless an error is a refusal with a code.
func refusedBy(t *testing.T, what string, err error, code string) {
	t.Helper()
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Code != code {
		t.Errorf("%s: got %v, want a refusal with %s", what, err, code)
	}
}

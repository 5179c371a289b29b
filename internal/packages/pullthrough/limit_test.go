package pullthrough_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// roomy is a storage on a disk with some free space.
type roomy struct {
	*storage
	room int64
	err  error
}

func (r *roomy) Room() (int64, error) { return r.room, r.err }

// serveBlob makes the registry serve zeros as a blob, and returns its path.
func serveBlob(r *registry, size int64, stated bool) string {
	h := sha256.New()
	_, _ = io.CopyN(h, zeros{}, size)
	path := "/v2/acme/app/blobs/sha256:" + hex.EncodeToString(h.Sum(nil))
	r.handle = func(w http.ResponseWriter, req *http.Request) bool {
		if req.URL.Path != path {
			return false
		}
		if stated {
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		}
		_, _ = io.CopyN(w, zeros{}, size)
		return true
	}
	return path
}

// anonymous is an upstream of images that needs no token.
type anonymous struct{ pullthrough.Upstream }

func (a anonymous) Send(ctx context.Context, f pullthrough.Fetch) (*http.Response, error) {
	return a.Get(ctx, f.URL, f.Accept)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Layers beyond the usual limit need room on the disk. Other files do not exceed it.
func TestLargeLayersNeedRoom(t *testing.T) {
	const plain, size = 1 << 20, 3 << 20
	image := func(q *pullthrough.Request) { q.Ecosystem, q.Upstream = packages.OCI, anonymous{q.Upstream} }
	for name, c := range map[string]struct {
		room   int64
		err    error
		stated bool
		want   string // part of the reason; empty if the layer passes
	}{
		"enough room":       {3 * size, nil, true, ""},
		"too little room":   {3*size - 3, nil, true, "three times the size"},
		"a full disk":       {0, nil, true, "three times the size"},
		"unknown room":      {3 * size, errors.New("broken"), true, "broken"},
		"a size not stated": {100 * size, nil, false, "larger than the cache accepts"},
	} {
		r, s := newRegistry(t), newStorage(t)
		path := serveBlob(r, size, c.stated)
		cache := pullthrough.New(&roomy{s, c.room, c.err}, time.Now)
		cache.SetMaxPlain(plain)
		for range 2 { // an error leaves nothing behind that blocks the next request
			text, _, err := get(t, cache, r, path, image)
			if c.want == "" && (err != nil || len(text) != size) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %d bytes, %v, want %q", name, len(text), err, c.want)
			}
		}
		if c.want != "" {
			if list, err := s.List(); err != nil || len(list) != 0 {
				t.Errorf("%s: the cache has %+v (%v), want nothing", name, list, err)
			}
		}
	}
	r := newRegistry(t)
	r.npm("a", version{"1.0.0", strings.Repeat("a", size), 90 * day})
	cache := pullthrough.New(&roomy{newStorage(t), 100 * size, nil}, time.Now)
	cache.SetMaxPlain(plain)
	if _, _, err := get(t, cache, r, "/a/-/a-1.0.0.tgz"); err == nil || !strings.Contains(err.Error(), "larger than the cache accepts") {
		t.Errorf("another ecosystem: got %v, want a refusal", err)
	}
}

// A layer of more than a gigabyte passes the real limits. It takes a few gigabytes of disk, so only
// the complete tests do it.
func TestLayerBeyondAGigabyteThroughCache(t *testing.T) {
	if os.Getenv("CRANNOG_TEST_FULL") == "" {
		t.Skip("CRANNOG_TEST_FULL is not set")
	}
	const size = 1<<30 + 1<<20
	r, s := newRegistry(t), newStorage(t)
	path := serveBlob(r, size, true)
	cache := pullthrough.New(&roomy{s, 4 << 30, nil}, time.Now)
	for _, cached := range []bool{false, true} {
		a, err := cache.Serve(t.Context(), pullthrough.Request{Ecosystem: packages.OCI, Origin: r.URL, Path: path, Gate: allowAll, Upstream: anonymous{r}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, a.Body)
		a.Body.Close()
		if err != nil || n != size || a.Fact.Cached != cached || !strings.HasSuffix(path, a.Fact.Hash) {
			t.Errorf("got %d bytes, %v and %+v, want %d", n, err, a.Fact, size)
		}
	}
	if list, err := s.List(); err != nil || len(list) != 1 {
		t.Error(fmt.Sprint("the cache has ", list, err))
	}
}

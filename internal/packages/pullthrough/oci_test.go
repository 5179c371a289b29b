package pullthrough_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// content returns the requests for content. Clients check the API with /v2/ each time.
func content(list []string) []string {
	return slices.DeleteFunc(list, func(r string) bool { return r == "GET /v2/" })
}

// A client gets a whole image for several platforms twice. The second time, the registry is not
// asked, and when the tag is old only for its digest.
func TestImageIsPulledThroughCache(t *testing.T) {
	r, s, now := newImageRegistry(t), newStorage(t), newClock()
	index := r.push("acme/app", "1.0")
	front := r.front(pullthrough.New(s, now.now))
	pull := func() {
		t.Helper()
		ref, err := name.NewTag(strings.TrimPrefix(front.URL, "http://") + "/acme/app:1.0")
		if err != nil {
			t.Fatal(err)
		}
		got, err := remote.Index(ref)
		if err != nil {
			t.Fatal(err)
		}
		readIndex(t, got)
		want, err := index.Digest()
		if sum, err2 := got.Digest(); err != nil || err2 != nil || sum != want {
			t.Errorf("got %s (%v, %v), want %s", sum, err, err2, want)
		}
	}
	pull()
	if list := content(r.requests()); len(list) < 5 {
		t.Fatalf("the first pull made the requests %v, want those of the whole image", list)
	}
	pull()
	if list := content(r.requests()); len(list) != 0 {
		t.Errorf("the second pull made the requests %v, want none", list)
	}
	now.pass(pullthrough.DocumentLife + time.Minute)
	pull()
	if list := content(r.requests()); !slices.Equal(list, []string{"HEAD /v2/acme/app/manifests/1.0"}) {
		t.Errorf("a later pull made the requests %v, want one for the digest", list)
	}
	pull()
	if list := content(r.requests()); len(list) != 0 {
		t.Errorf("the pull after that made the requests %v, want none", list)
	}
	at := strings.TrimPrefix(front.URL, "http://") + "/acme/app"
	if tags, err := crane.ListTags(at); err != nil || !slices.Equal(tags, []string{"1.0"}) {
		t.Errorf("ListTags: got %v (%v), want 1.0", tags, err)
	}
	top, _, layer := parts(t, index)
	if sum, err := crane.Digest(at + ":1.0"); err != nil || sum != top {
		t.Errorf("Digest, which is a HEAD: got %s (%v), want %s", sum, err, top)
	}
	resp, err := http.Head(front.URL + "/v2/acme/app/blobs/" + layer)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength <= 0 || resp.Header.Get("Docker-Content-Digest") != layer {
		t.Errorf("HEAD of a blob: got %d, %d bytes and %v", resp.StatusCode, resp.ContentLength, resp.Header)
	}
	if tags, err := crane.ListTags(at + "-absent"); err == nil {
		t.Errorf("an absent repository has the tags %v", tags)
	}
}

func TestTamperedImageIsRefused(t *testing.T) {
	type fault = func(w http.ResponseWriter, q *http.Request, plain http.Handler) bool
	// answer returns a fault for one kind of path that changes the body or the headers.
	answer := func(part string, do func(w http.ResponseWriter, head http.Header, body []byte)) fault {
		return func(w http.ResponseWriter, q *http.Request, plain http.Handler) bool {
			if !strings.Contains(q.URL.Path, part) {
				return false
			}
			got := httptest.NewRecorder()
			plain.ServeHTTP(got, q)
			do(w, got.Header(), got.Body.Bytes())
			return true
		}
	}
	other := func(w http.ResponseWriter, head http.Header, body []byte) {
		w.Header().Set("Content-Type", head.Get("Content-Type"))
		_, _ = w.Write(append([]byte(" "), body...))
	}
	for name, c := range map[string]struct {
		path  func(top, image, layer string) string
		fault fault
		code  string
	}{
		"another blob": {func(_, _, layer string) string { return "blobs/" + layer }, answer("/blobs/", other), "package_integrity"},
		"another manifest for a digest": {
			func(_, image, _ string) string { return "manifests/" + image }, answer("/manifests/", other), "package_integrity",
		},
		"another manifest than its header says": {
			func(string, string, string) string { return "manifests/1.0" },
			answer("/manifests/", func(w http.ResponseWriter, _ http.Header, body []byte) {
				w.Header().Set("Docker-Content-Digest", "sha256:"+strings.Repeat("a", 64))
				_, _ = w.Write(body)
			}), "package_integrity",
		},
		"a truncated blob": {
			func(_, _, layer string) string { return "blobs/" + layer },
			answer("/blobs/", func(w http.ResponseWriter, _ http.Header, body []byte) {
				w.Header().Set("Content-Length", "999999")
				_, _ = w.Write(body)
			}), "upstream_failed",
		},
		"a blob of a wrong length": {
			func(_, _, layer string) string { return "blobs/" + layer },
			answer("/blobs/", func(w http.ResponseWriter, _ http.Header, body []byte) {
				w.Header().Set("Content-Length", "10")
				_, _ = w.Write(body[:10])
			}), "package_integrity",
		},
		"a blob that is too large": {
			func(_, _, layer string) string { return "blobs/" + layer },
			answer("/blobs/", func(w http.ResponseWriter, _ http.Header, _ []byte) {
				w.Header().Set("Content-Length", "1073741825")
				w.WriteHeader(http.StatusOK)
			}), "package_too_large",
		},
		"a manifest of schema 1": {
			func(string, string, string) string { return "manifests/1.0" },
			answer("/manifests/", func(w http.ResponseWriter, _ http.Header, _ []byte) {
				_, _ = w.Write([]byte(`{"schemaVersion":1,"fsLayers":[]}`))
			}), "package_document",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, now := newImageRegistry(t), newClock()
			path := "/v2/acme/app/" + c.path(parts(t, r.push("acme/app", "1.0")))
			s := newStorage(t)
			cache := pullthrough.New(s, now.now)
			r.inject(c.fault)
			_, _, err := r.read(cache, path)
			refusedBy(t, path, err, c.code)
			// The refused content was not stored, and the true one is served. A tag is read again when
			// it is old.
			r.inject(nil)
			now.pass(pullthrough.DocumentLife + time.Minute)
			if _, a, err := r.read(cache, path); err != nil || a.Fact.Cached || a.Digest == "" {
				t.Errorf("without the fault: got %+v (%v), want a fetched answer", a.Fact, err)
			}
		})
	}
}

// A tag may move at any time. What is served has the digest under which it is stored.
func TestTagThatMoves(t *testing.T) {
	r, now := newImageRegistry(t), newClock()
	first, _, _ := parts(t, r.push("acme/app", "latest"))
	cache := pullthrough.New(newStorage(t), now.now)
	const path = "/v2/acme/app/manifests/latest"
	if _, a, err := r.read(cache, path); err != nil || a.Digest != first {
		t.Fatalf("got %+v (%v), want %s", a, err, first)
	}
	second, _, _ := parts(t, r.push("acme/app", "latest"))
	if _, a, err := r.read(cache, path); err != nil || a.Digest != first {
		t.Errorf("within the life of the tag: got %+v (%v), want %s", a, err, first)
	}
	now.pass(pullthrough.DocumentLife + time.Minute)
	third := ""
	r.inject(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if q.Method == http.MethodGet && third == "" {
			r.inject(nil)
			third, _, _ = parts(t, r.push("acme/app", "latest"))
		}
		return false
	})
	text, a, err := r.read(cache, path)
	sum := sha256.Sum256([]byte(text))
	if err != nil || third == "" || a.Digest != third || a.Digest != "sha256:"+hex.EncodeToString(sum[:]) || third == second {
		t.Errorf("a tag that moved after the answer to HEAD: got %s (%v), want %s", a.Digest, err, third)
	}
	r.requests()
	if _, a, err := r.read(cache, "/v2/acme/app/manifests/"+third); err != nil || a.Digest != third || len(r.requests()) != 0 {
		t.Errorf("its digest: got %+v (%v), want it from the cache", a, err)
	}
	if _, a, err := r.read(cache, "/v2/acme/app/manifests/"+first, func(r *pullthrough.Request) { r.Offline = true }); err != nil || a.Digest != first {
		t.Errorf("the first digest while offline: got %+v (%v), want it", a, err)
	}
}

// The header Accept of one client changes nothing for others.
func TestAcceptDoesNotPoisonCache(t *testing.T) {
	r := newImageRegistry(t)
	r.push("acme/app", "1.0")
	var got []string
	r.inject(func(_ http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		got = append(got, q.Header.Get("Accept"))
		return false
	})
	cache := pullthrough.New(newStorage(t), time.Now)
	accept := func(list ...string) func(*pullthrough.Request) {
		return func(r *pullthrough.Request) { r.Accept = list }
	}
	const path, index = "/v2/acme/app/manifests/1.0", "application/vnd.oci.image.index.v1+json"
	_, _, err := r.read(cache, path, accept("application/vnd.docker.distribution.manifest.v1+json"))
	refusedBy(t, "a client of schema 1", err, "package_type")
	if len(got) != 1 || !strings.Contains(got[0], index) || strings.Contains(got[0], "v1+json, application/vnd.docker.distribution.manifest.v1") {
		t.Errorf("the registry got the headers %v, want the fixed list", got)
	}
	for _, list := range [][]string{nil, {"*/*"}, {"text/html", index + ";q=0.5"}, {"application/*"}} {
		if _, a, err := r.read(cache, path, accept(list...)); err != nil || a.Type != index {
			t.Errorf("a client with Accept %q: got %+v (%v), want it", list, a, err)
		}
	}
	_, _, err = r.read(cache, path, accept(index+";q=0"))
	refusedBy(t, "a client that refuses the type", err, "package_type")
}

// gate returns a gate that permits some versions, or all without any, and denies others.
func gate(allow, deny []string) packages.Gate {
	return func(a packages.Artifact, _ packages.Version, known bool) *packages.Denial {
		switch {
		case known && slices.Contains(deny, a.Version):
			return &packages.Denial{Rule: packages.RuleDenied, Reason: "denied"}
		case known && len(allow) > 0 && !slices.Contains(allow, a.Version):
			return &packages.Denial{Rule: "packages.allow", Reason: "not allowed"}
		}
		return nil
	}
}

func gated(allow, deny []string) func(*pullthrough.Request) {
	return func(r *pullthrough.Request) { r.Gate = gate(allow, deny) }
}

// A policy that permits some tags permits by digest only what belongs to them.
func TestPolicyOfTagsDecidesAboutDigests(t *testing.T) {
	r, s := newImageRegistry(t), newStorage(t)
	one, two := r.push("acme/app", "1.0", "stable"), r.push("acme/app", "2.0")
	cache := pullthrough.New(s, time.Now)
	top, image, layer := parts(t, one)
	otherTop, otherImage, otherLayer := parts(t, two)
	only := gated([]string{"1.0"}, nil)
	const base = "/v2/acme/app/"
	for _, path := range []string{"manifests/" + top, "manifests/" + image, "blobs/" + layer, "manifests/2.0"} {
		_, _, err := r.read(cache, base+path, only)
		refusedBy(t, path+" before the tag was read", err, "package_denied")
	}
	// Another sandbox, whose policy permits everything, reads both images.
	for _, path := range []string{"manifests/2.0", "manifests/" + otherImage, "blobs/" + otherLayer, "manifests/1.0"} {
		if _, _, err := r.read(cache, base+path); err != nil {
			t.Fatalf("%s without rules: %v", path, err)
		}
	}
	for _, c := range []*pullthrough.Cache{cache, pullthrough.New(s, time.Now)} { // also in another process
		for _, path := range []string{"manifests/1.0", "manifests/" + top, "manifests/" + image, "blobs/" + layer} {
			if _, a, err := r.read(c, base+path, only); err != nil || a.Digest == "" {
				t.Errorf("%s of the permitted tag: got %+v (%v), want it", path, a.Fact, err)
			}
		}
		for _, path := range []string{"manifests/" + otherTop, "manifests/" + otherImage, "blobs/" + otherLayer} {
			_, _, err := r.read(c, base+path, only)
			refusedBy(t, path+" of another tag", err, "package_denied")
		}
		if _, _, err := r.read(c, base+"blobs/"+otherLayer, gated([]string{otherTop}, nil)); err != nil {
			t.Errorf("a layer of an index whose digest is permitted: %v", err)
		}
		// What is denied as a tag is denied by its digests too, unless a permitted tag has it.
		for _, path := range []string{"manifests/2.0", "manifests/" + otherTop, "manifests/" + otherImage, "blobs/" + otherLayer} {
			_, _, err := r.read(c, base+path, gated(nil, []string{"2.0"}))
			refusedBy(t, path+" of a denied tag", err, "package_denied")
			if _, _, err := r.read(c, base+path, gated(nil, []string{"3.0"})); err != nil {
				t.Errorf("%s with another tag denied: %v", path, err)
			}
		}
	}
	if _, _, err := r.read(cache, base+"manifests/stable"); err != nil {
		t.Fatal(err)
	}
	latest := gated(nil, []string{"stable"})
	if _, _, err := r.read(cache, base+"manifests/"+top, latest); err != nil {
		t.Errorf("a digest that a tag has which is not denied: %v", err)
	}
	_, _, err := r.read(cache, base+"manifests/stable", latest)
	refusedBy(t, "the denied tag", err, "package_denied")
	_, _, err = r.read(cache, base+"manifests/1.0", gated(nil, []string{top}))
	refusedBy(t, "a tag whose digest is denied", err, "package_denied")
	text, a, err := r.read(cache, base+"tags/list", gated(nil, []string{"2.0"}))
	if err != nil || strings.Contains(text, "2.0") || !strings.Contains(text, `"1.0"`) || !slices.Equal(a.Fact.Withheld, []string{"2.0"}) {
		t.Errorf("tags: got %s %+v (%v), want them without 2.0", text, a.Fact, err)
	}
}

// A registry of images states no time that it vouches for, so min_age hides everything that the
// policy does not except.
func TestImagesAreUndated(t *testing.T) {
	r := newImageRegistry(t)
	_, _, layer := parts(t, r.push("acme/app", "1.0"))
	cache := pullthrough.New(newStorage(t), time.Now)
	aged := func(r *pullthrough.Request) { r.Gate, r.Dated = young, true }
	for _, path := range []string{"/v2/acme/app/manifests/1.0", "/v2/acme/app/blobs/" + layer} {
		if _, _, err := r.read(cache, path, aged); err == nil {
			t.Errorf("%s was served despite min_age", path)
		}
		if _, _, err := r.read(cache, path); err != nil {
			t.Errorf("%s without min_age: %v", path, err)
		}
	}
}

// Each entry of a list of referrers is judged, and a list with none left is still an answer.
func TestReferrersAreFiltered(t *testing.T) {
	r := newImageRegistry(t)
	top, image, layer := parts(t, r.push("acme/app", "1.0"))
	r.inject(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		if !strings.Contains(q.URL.Path, "/referrers/") {
			return false
		}
		_, _ = w.Write([]byte(`{"schemaVersion":2,"manifests":[{"digest":"` + image + `","artifactType":"a/b"},{"digest":"` + layer + `"},{"digest":"md5:00"}]}`))
		return true
	})
	cache := pullthrough.New(newStorage(t), time.Now)
	path := "/v2/acme/app/referrers/" + top
	text, a, err := r.read(cache, path)
	if err != nil || a.Type != "application/vnd.oci.image.index.v1+json" || !strings.Contains(text, image) || !strings.Contains(text, `"artifactType":"a/b"`) || !strings.Contains(text, layer) || strings.Contains(text, "md5") {
		t.Errorf("got %s %+v (%v), want both digests of SHA-256", text, a, err)
	}
	text, a, err = r.read(cache, path, gated(nil, []string{image}))
	if err != nil || strings.Contains(text, image) || !strings.Contains(text, layer) || a.Fact.Verdict != packages.Filtered {
		t.Errorf("with one denied: got %s %+v (%v), want the other", text, a.Fact, err)
	}
	if text, _, err = r.read(cache, path, gated([]string{"1.0"}, nil)); err != nil || !strings.Contains(text, `"manifests":[]`) {
		t.Errorf("with none permitted: got %s (%v), want an empty list", text, err)
	}
}

// Registries have lists of tags in pages of their own size. The cache follows them to the end.
func TestTagsOfAllPages(t *testing.T) {
	r := newImageRegistry(t)
	pages := map[string]string{"": `["1","2"]`, "2": `["3","bad tag!"]`, "3": `[]`}
	r.inject(func(w http.ResponseWriter, q *http.Request, _ http.Handler) bool {
		_, _ = w.Write([]byte(`{"name":"acme/app","tags":` + pages[q.URL.Query().Get("last")] + `}`))
		return true
	})
	cache := pullthrough.New(newStorage(t), time.Now)
	if text, _, err := r.read(cache, "/v2/acme/app/tags/list"); err != nil || text != `{"name":"acme/app","tags":["1","2","3"]}` || len(r.requests()) != 3 {
		t.Errorf("got %s (%v), want the tags of all pages", text, err)
	}
	// A registry that has only one page repeats it.
	pages["2"] = pages[""]
	if text, _, err := r.read(pullthrough.New(newStorage(t), time.Now), "/v2/acme/app/tags/list"); err != nil || text != `{"name":"acme/app","tags":["1","2"]}` || len(r.requests()) != 2 {
		t.Errorf("a registry without pages: got %s (%v), want its tags", text, err)
	}
}

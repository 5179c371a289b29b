package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

const (
	imageHost  = "registry-1.docker.io"
	tokenHost  = "auth.docker.io"
	layerHost  = "cdn.images.test"
	layer      = "the content of a layer"
	imageIndex = "application/vnd.oci.image.index.v1+json"
)

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// imageText is the manifest of the image acme/app:1.0, and indexText that of 2.0.
var (
	imageText = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"digest":"` + sha256Of("{}") + `"},"layers":[{"digest":"` + sha256Of(layer) + `"}]}`
	indexText = `{"schemaVersion":2,"mediaType":"` + imageIndex + `","manifests":[{"digest":"` + sha256Of(imageText) + `"}]}`
)

// serveImages returns a registry that wants a token and has its layers on another host.
func serveImages(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer for-everybody" {
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+tokenHost+`/token",service="registry"`)
		http.Error(w, "a token is needed", http.StatusUnauthorized)
		return
	}
	text, kind := "", "application/vnd.oci.image.manifest.v1+json"
	switch r.URL.Path {
	case "/v2/acme/app/manifests/1.0", "/v2/acme/app/manifests/" + sha256Of(imageText):
		text = imageText
	case "/v2/acme/app/manifests/2.0":
		text, kind = indexText, imageIndex
	case "/v2/acme/app/blobs/" + sha256Of(layer):
		http.Redirect(w, r, "https://"+layerHost+"/data", http.StatusTemporaryRedirect)
		return
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, text)
}

func imagePolicy(settings string, hosts ...string) string {
	var list []string
	for _, h := range hosts {
		list = append(list, "{host: "+h+", rules: [{methods: [GET, HEAD], do: allow}]}")
	}
	return "level: minimal\npackages: {" + settings + "}\nnetwork: {unlisted: deny, hosts: [" + strings.Join(list, ", ") + "]}\n"
}

// Images come from the cache, with a token of the cache's own that only the registry gets. Each
// further host needs the permission of the policy.
func TestImagesComeFromCache(t *testing.T) {
	w := newEnvironment(t)
	registry := w.serve("443", serveImages, imageHost)
	service := w.serve("443", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"token":"for-everybody"}`) }, tokenHost)
	cdn := w.serve("443", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, layer) }, layerHost)
	cache := newPackageCache(t)
	with := func(c *Config) { c.Packages = cache }
	base := "https://" + imageHost + "/v2/acme/app/"
	blob := base + "blobs/" + sha256Of(layer)

	alone := w.newSandbox(imagePolicy("cache: [oci]", imageHost), with)
	code, text := alone.get(base + "manifests/1.0")
	var got body
	if err := json.Unmarshal([]byte(text), &got); err != nil || code != 403 || len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Message, tokenHost+", so network.hosts must allow") || len(service.log()) != 0 {
		t.Errorf("without the host of tokens: got %d %s (%v), want 403 with its name", code, text, err)
	}
	without := w.newSandbox(imagePolicy("cache: [oci]", imageHost, tokenHost), with)
	if code, text := without.get(base + "manifests/1.0"); code != 200 || text != imageText {
		t.Fatalf("a manifest: got %d %s, want it", code, text)
	}
	if code, text := without.get(blob); code != 403 || !strings.Contains(text, layerHost+", so network.hosts must allow") || len(cdn.log()) != 0 {
		t.Errorf("without the host of layers: got %d %s, want 403 with its name", code, text)
	}
	all := w.newSandbox(imagePolicy("cache: [oci]", imageHost, tokenHost, layerHost), with)
	if code, text := all.do(http.MethodGet, blob, "", http.Header{"Authorization": {"Bearer of-this-sandbox"}, "Accept": {"text/html"}}); code != 200 || text != layer {
		t.Errorf("a layer: got %d %s, want it", code, text)
	}
	for _, h := range []*host{registry, service, cdn} {
		for _, s := range h.log() {
			if want := h == registry; s.Auth != "" && (s.Auth != "Bearer for-everybody" || !want) {
				t.Errorf("%s got the token %q", s.Path, s.Auth)
			}
		}
	}
	// Another sandbox gets everything without a request, although its policy permits no other host.
	before := len(registry.log()) + len(service.log()) + len(cdn.log())
	other := w.newSandbox(imagePolicy("cache: [oci], allow: [\"oci:docker.io/acme/*@1.0\"]", imageHost), with)
	for path, want := range map[string]string{"manifests/1.0": imageText, "manifests/" + sha256Of(imageText): imageText, "blobs/" + sha256Of(layer): layer} {
		if code, text := other.get(base + path); code != 200 || text != want {
			t.Errorf("%s in another sandbox: got %d %s, want it", path, code, text)
		}
		if p := other.records.all()[len(other.records.all())-1].Package; p == nil || !p.Cached || p.Ecosystem != packages.OCI || p.Hash != sha256Of(want) {
			t.Errorf("%s: the entry has %+v, want an image from the cache", path, p)
		}
	}
	if n := len(registry.log()) + len(service.log()) + len(cdn.log()); n != before {
		t.Errorf("%d more requests, want none", n-before)
	}
	if code, text := other.get(base + "manifests/2.0"); code != 403 || !strings.Contains(text, "packages.allow") || !strings.Contains(text, "oci:docker.io/acme/app@2.0") {
		t.Errorf("a tag that is not allowed: got %d %s, want 403", code, text)
	}
	resp, err := other.client(false).Head(base + "manifests/1.0")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ContentLength != int64(len(imageText)) || resp.Header.Get("Docker-Content-Digest") != sha256Of(imageText) {
		t.Errorf("HEAD: got %d, %d bytes and %v", resp.StatusCode, resp.ContentLength, resp.Header)
	}
	if code, text := all.do(http.MethodGet, base+"manifests/2.0", "", http.Header{"Accept": {"application/vnd.oci.image.manifest.v1+json"}}); code != 406 || !strings.Contains(text, "does not accept") {
		t.Errorf("a client that accepts no index: got %d %s, want 406", code, text)
	}
	if code, text := all.do(http.MethodGet, base+"manifests/2.0", "", http.Header{"Accept": {imageIndex}}); code != 200 || text != indexText {
		t.Errorf("a client that accepts an index: got %d %s, want it", code, text)
	}
	pinned := w.newSandbox(imagePolicy("cache: [oci], allow: [\"oci:docker.io/acme/app@"+sha256Of(imageText)+"\"]", imageHost), with)
	for path, want := range map[string]int{"manifests/" + sha256Of(imageText): 200, "blobs/" + sha256Of(layer): 200, "manifests/1.0": 403, "manifests/" + sha256Of(indexText): 403} {
		if code, text := pinned.get(base + path); code != want {
			t.Errorf("%s with only a digest allowed: got %d %s, want %d", path, code, text, want)
		}
	}
	if code, text := other.get(base + "manifests/1.0?ns=ghcr.io"); code != 403 || !strings.Contains(text, "parameter ns") {
		t.Errorf("an image of another registry from a mirror: got %d %s, want 403", code, text)
	}
	if code, _ := other.get(base + "manifests/1.0?other=ns"); code != 200 {
		t.Errorf("another query: got %d, want 200", code)
	}
	// The client gets its own tokens as before.
	if code, _ := other.get("https://" + imageHost + "/v2/"); code != 401 {
		t.Errorf("the check of the API: got %d, want the registry's 401", code)
	}
	if code, text := w.newSandbox(imagePolicy("cache: [oci], min_age: 24h", imageHost), with).get(base + "manifests/1.0"); code != 404 || !strings.Contains(text, "MANIFEST_UNKNOWN") {
		t.Errorf("an image with min_age: got %d %s, want 404", code, text)
	}
	if code, text := w.newSandbox(imagePolicy("cache: [oci], min_age: 24h, undated: [\"oci:docker.io/acme/**\"]", imageHost), with).get(base + "manifests/1.0"); code != 200 {
		t.Errorf("an image with min_age that is excepted: got %d %s, want 200", code, text)
	}
}

package proxy

import (
	"net/http"
	"testing"
)

func TestParseRange(t *testing.T) {
	for header, want := range map[string]struct {
		from, length int64 // length is 0 if there is no such part
		ok           bool
	}{
		"bytes=0-": {0, 10, true}, "bytes=0-9": {0, 10, true}, "bytes=0-0": {0, 1, true}, "bytes=3-5": {3, 3, true}, "bytes=9-100": {9, 1, true},
		"bytes=-3": {7, 3, true}, "bytes=-100": {0, 10, true}, "bytes= 1-2": {1, 2, true},
		"bytes=10-": {0, 0, true}, "bytes=-0": {0, 0, true}, "bytes=100-200": {0, 0, true},
		"": {}, "bytes=": {}, "bytes=-": {}, "bytes=5-3": {}, "bytes=a-b": {}, "bytes=+1-2": {}, "bytes=0-1,3-4": {}, "items=0-1": {}, "bytes=1--2": {}, "bytes=99999999999999999999-": {},
	} {
		part, ok := parseRange(header, 10)
		if ok != want.ok || (part == nil) != (want.length == 0) || part != nil && (part.from != want.from || part.length != want.length) {
			t.Errorf("%q: got %+v, %v, want %+v", header, part, ok, want)
		}
	}
}

func FuzzRange(f *testing.F) {
	f.Add("bytes=0-9", int64(10))
	f.Add("bytes=-5", int64(0))
	f.Add("bytes=9223372036854775807-9223372036854775807", int64(5))
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		part, ok := parseRange(header, size)
		if part != nil && (!ok || part.from < 0 || part.length < 1 || part.from > size-part.length) {
			t.Errorf("%q of %d bytes: got %+v", header, size, part)
		}
	})
}

// A client gets a part of a layer, of the verified file, also of one that is not in the cache yet.
func TestPartsOfLayersComeFromCache(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", serveImages, imageHost)
	w.serve("443", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(`{"token":"for-everybody"}`)) }, tokenHost)
	cdn := w.serve("443", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(layer)) }, layerHost)
	cache := newPackageCache(t)
	s := w.newSandbox(imagePolicy("cache: [oci]", imageHost, tokenHost, layerHost), func(c *Config) { c.Packages = cache })
	base := "https://" + imageHost + "/v2/acme/app/"
	tag := `"` + sha256Of(layer) + `"`
	for _, c := range []struct {
		header http.Header
		code   int
		text   string
	}{
		{http.Header{"Range": {"bytes=4-10"}}, 206, layer[4:11]},
		{http.Header{"Range": {"bytes=4-"}}, 206, layer[4:]},
		{http.Header{"Range": {"bytes=-5"}, "If-Range": {tag}}, 206, layer[len(layer)-5:]},
		{http.Header{"Range": {"bytes=4-"}, "If-Range": {`"other"`}}, 200, layer},
		{http.Header{"Range": {"bytes=4-5,7-8"}}, 200, layer},
		{http.Header{"Range": {"bytes=1000-"}}, 416, ""},
		{nil, 200, layer},
	} {
		code, text := s.do(http.MethodGet, base+"blobs/"+sha256Of(layer), "", c.header)
		if code != c.code || text != c.text {
			t.Errorf("%v: got %d %q, want %d %q", c.header, code, text, c.code, c.text)
		}
	}
	if n := len(cdn.log()); n != 1 {
		t.Errorf("the layer was fetched %d times, want once", n)
	}
	if code, text := s.do(http.MethodGet, base+"manifests/"+sha256Of(imageText), "", http.Header{"Range": {"bytes=0-1"}}); code != 200 || text != imageText {
		t.Errorf("a manifest: got %d %q, want the whole", code, text)
	}
}

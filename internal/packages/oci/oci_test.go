package oci

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

var sum = "sha256:" + strings.Repeat("ab", 32)

func TestParseFindsKindNameAndVersion(t *testing.T) {
	const reg = "https://ghcr.io"
	for _, c := range []struct {
		origin, path string
		want         packages.Target
	}{
		{reg, "/v2/", packages.Target{Kind: packages.Service}},
		{reg, "/v2", packages.Target{Kind: packages.Service}},
		{reg, "/token", packages.Target{Kind: packages.Service}},
		{reg, "/v2/acme/app/blobs/uploads/4f0c", packages.Target{Kind: packages.Service}},
		{reg, "/v2/acme/app/manifests/1.0", packages.Target{Kind: packages.Document, Name: "ghcr.io/acme/app", Version: "1.0"}},
		{reg, "/v2/acme/app/manifests/" + sum, packages.Target{Kind: packages.OfFile, Name: "ghcr.io/acme/app", Version: sum}},
		{reg, "/v2/acme/app/manifests/sha256%3A" + sum[7:], packages.Target{Kind: packages.OfFile, Name: "ghcr.io/acme/app", Version: sum}},
		{reg, "/v2/acme/app/blobs/" + sum, packages.Target{Kind: packages.OfFile, Name: "ghcr.io/acme/app", Version: sum}},
		{reg, "/v2/acme/app/tags/list", packages.Target{Kind: packages.Document, Name: "ghcr.io/acme/app"}},
		{reg, "/v2/acme/app/referrers/" + sum, packages.Target{Kind: packages.Document, Name: "ghcr.io/acme/app"}},
		{reg, "/v2/acme/blobs/uploads/manifests/1.0", packages.Target{Kind: packages.Document, Name: "ghcr.io/acme/blobs/uploads", Version: "1.0"}},
		// All hosts of Docker Hub, and both names of an official image, are one.
		{"https://registry-1.docker.io", "/v2/library/alpine/manifests/3", packages.Target{Kind: packages.Document, Name: "docker.io/library/alpine", Version: "3"}},
		{"https://index.docker.io:443", "/v2/alpine/manifests/3", packages.Target{Kind: packages.Document, Name: "docker.io/library/alpine", Version: "3"}},
		{"https://REG.test:8443", "/v2/a/tags/list", packages.Target{Kind: packages.Document, Name: "reg.test/a"}},
		// What a registry might read in another way belongs to no package.
		{reg, "/v2/acme/app/manifests/", packages.Target{}},
		{reg, "/v2/acme/app/manifests/1.0/", packages.Target{}},
		{reg, "/v2//acme/manifests/1.0", packages.Target{}},
		{reg, "/v2/acme/../app/manifests/1.0", packages.Target{}},
		{reg, "/v2/acme%2Fapp/manifests/1.0", packages.Target{}},
		{reg, "/v2/Acme/manifests/1.0", packages.Target{}},
		{reg, "//v2/acme/manifests/1.0", packages.Target{}},
		{reg, "/V2/acme/manifests/1.0", packages.Target{}},
		{reg, "/v2/acme/manifests/sha256:abc", packages.Target{}},
		{reg, "/v2/acme/manifests/sha512:" + strings.Repeat("ab", 64), packages.Target{}},
		{reg, "/v2/acme/blobs/1.0", packages.Target{}},
		{reg, "/v2/manifests/1.0", packages.Target{}},
		{reg, "/v2/acme/app/blobs/uploads/a%2fb", packages.Target{}},
		{reg, "/c1/squash/acme/app/1.0", packages.Target{}},
		{reg, "/%zz", packages.Target{}},
		{reg, "/v2/" + strings.Repeat("a", 300) + "/tags/list", packages.Target{}},
	} {
		got := New().Parse(c.origin, c.path)
		if got.Kind != c.want.Kind || got.Name != c.want.Name || got.Version != c.want.Version {
			t.Errorf("Parse(%q, %q): got %+v, want %+v", c.origin, c.path, got, c.want)
		}
	}
}

// A rule can name a registry, a repository, a tag and a digest.
func TestPatternsOfImages(t *testing.T) {
	for entry, want := range map[string][2]string{
		"oci:docker.io/library/*":           {"docker.io/library/*", ""},
		"oci:ghcr.io/acme/app@1.*":          {"ghcr.io/acme/app", "1.*"},
		"oci:docker.io/library/a@" + sum:    {"docker.io/library/a", sum},
		"oci:reg.test/**@sha256:" + sum[7:]: {"reg.test/**", sum},
	} {
		e, name, version, ok := packages.ParsePattern(entry)
		if !ok || e != packages.OCI || name != want[0] || version != want[1] {
			t.Errorf("%s: got %q %q %v, want %v", entry, name, version, ok, want)
		}
	}
}

func TestParseManifest(t *testing.T) {
	one := `{"digest":"` + sum + `","size":1}`
	other := `{"digest":"sha256:` + strings.Repeat("cd", 32) + `"}`
	for name, c := range map[string]struct{ text, kind string }{
		"image":               {`{"schemaVersion":2,"config":` + one + `,"layers":[` + other + `,` + other + `,{"digest":"sha512:00"}]}`, ociManifest},
		"image of Docker":     {`{"schemaVersion":2,"mediaType":"` + dockerManifest + `","config":` + one + `,"layers":[` + other + `]}`, dockerManifest},
		"index":               {`{"schemaVersion":2,"manifests":[` + one + `,` + other + `]}`, ociIndex},
		"list of Docker":      {`{"schemaVersion":2,"mediaType":"` + dockerList + `","manifests":[` + one + `,` + other + `]}`, dockerList},
		"both":                {`{"schemaVersion":2,"manifests":[],"config":` + one + `,"layers":[]}`, ""},
		"both, hidden":        {`{"schemaVersion":2,"manifests":[],"Layers":[]}`, ""},
		"nothing":             {`{"schemaVersion":2}`, ""},
		"no layers":           {`{"schemaVersion":2,"config":` + one + `}`, ""},
		"schema 1":            {`{"schemaVersion":1,"fsLayers":[]}`, ""},
		"schema 1 as 2":       {`{"schemaVersion":2,"fsLayers":[],"config":` + one + `,"layers":[]}`, ""},
		"type of the other":   {`{"schemaVersion":2,"mediaType":"` + ociIndex + `","config":` + one + `,"layers":[]}`, ""},
		"type of the other 2": {`{"schemaVersion":2,"mediaType":"` + ociManifest + `","manifests":[]}`, ""},
		"unknown type":        {`{"schemaVersion":2,"mediaType":"text/html","manifests":[]}`, ""},
		"too many":            {`{"schemaVersion":2,"manifests":[` + strings.Repeat("{},", maxParts) + `{}]}`, ""},
		"too large":           {`{"schemaVersion":2,"manifests":[]}` + strings.Repeat(" ", maxManifest), ""},
		"text":                {`hello`, ""},
	} {
		m, err := parseManifest([]byte(c.text))
		if (err == nil) != (c.kind != "") || m.mediaType != c.kind {
			t.Errorf("%s: got %+v (%v), want the type %q", name, m, err, c.kind)
		}
		if err == nil && !slices.Equal(m.parts, []string{sum, "sha256:" + strings.Repeat("cd", 32)}) {
			t.Errorf("%s: got the parts %v, want both digests", name, m.parts)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(`{"schemaVersion":2,"config":{"digest":"` + sum + `"},"layers":[{"digest":"` + sum + `"}]}`))
	f.Add([]byte(`{"schemaVersion":2,"manifests":[{"digest":"` + sum + `"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseManifest(text)
		if err != nil {
			return
		}
		if !slices.Contains([]string{ociIndex, ociManifest, dockerList, dockerManifest}, m.mediaType) || len(m.parts) > maxParts {
			t.Errorf("%q has the type %q and %d parts", text, m.mediaType, len(m.parts))
		}
		for _, p := range m.parts {
			if _, ok := digest(p); !ok {
				t.Errorf("%q names %q", text, p)
			}
		}
	})
}

// memory is a source that stores in memory.
type memory struct {
	packages.Source
	texts map[string][]byte
}

func (m memory) Stored(key string) ([]byte, error) {
	if text, ok := m.texts[key]; ok {
		return text, nil
	}
	return nil, packages.ErrAbsent
}

func (m memory) Store(_ context.Context, key string, text []byte) { m.texts[key] = text }

func TestImagesOfContent(t *testing.T) {
	p, s := New(), memory{texts: map[string][]byte{}}
	ctx := t.Context()
	for _, m := range []image{
		{Digest: "index", Tags: []string{"1.0"}, Parts: []string{"image", "other"}},
		{Digest: "image", Parts: []string{"layer"}},
		{Digest: "index", Tags: []string{"latest"}, Parts: []string{"image", "other"}},
		{Digest: "alone", Parts: []string{"layer"}},
	} {
		p.learn(ctx, s, "r", m)
	}
	if p.learn(ctx, s, "r", image{Digest: "index", Tags: []string{"1.0"}}) {
		t.Error("a known image counts as unknown")
	}
	for _, from := range []*Protocol{p, New()} { // also in another process
		for of, want := range map[string][]string{
			"index": {"1.0", "latest"}, "image": {"index 1.0", "index latest"}, "other": {"index 1.0", "index latest"},
			"layer": {"image index 1.0", "image index latest", "alone"}, "unknown": nil,
		} {
			var got []string
			for _, versions := range from.imagesOf(s, "r", of) {
				got = append(got, strings.Join(versions, " "))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", of, got, want)
			}
		}
		if got := from.imagesOf(s, "other", "layer"); got != nil {
			t.Errorf("another repository: got %v, want nothing", got)
		}
	}
}

func TestRecordOfImagesIsLimited(t *testing.T) {
	p, s := New(), memory{texts: map[string][]byte{}}
	for i := range maxImages + 10 {
		p.learn(t.Context(), s, "r", image{Digest: strconv.Itoa(i), Parts: []string{"p" + strconv.Itoa(i)}})
	}
	for i := range 2 * maxImageTags {
		p.learn(t.Context(), s, "r", image{Digest: "tagged", Tags: []string{strconv.Itoa(i)}})
	}
	for i := range 2 * maxRepositories {
		p.learn(t.Context(), s, "r"+strconv.Itoa(i), image{Digest: "a"})
	}
	if r := p.known(s, "r"); len(r.Images) != maxImages || r.Images[0].Digest != "11" || len(r.Images[maxImages-1].Tags) != maxImageTags {
		t.Errorf("got %d images from %s, want the last %d", len(r.Images), r.Images[0].Digest, maxImages)
	}
	if len(p.images) > maxRepositories {
		t.Errorf("%d repositories are in memory, want at most %d", len(p.images), maxRepositories)
	}
	s.texts[recordKey("damaged")] = []byte("{")
	if got := p.imagesOf(s, "damaged", "a"); got != nil {
		t.Errorf("a damaged record has %v, want nothing", got)
	}
}

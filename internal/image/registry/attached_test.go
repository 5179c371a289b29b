package registry_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/registry"
)

// hash returns the digest of data.
func hash(t *testing.T, data string) v1.Hash {
	t.Helper()
	d, _, err := v1.SHA256(strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// describe returns a manifest of a file about a subject.
func describe(t *testing.T, subject v1.Hash, sizes ...int64) string {
	t.Helper()
	m := v1.Manifest{SchemaVersion: 2, ArtifactType: "text/plain", Config: v1.Descriptor{Digest: hash(t, "{}")}, Subject: &v1.Descriptor{Digest: subject}}
	for _, size := range sizes {
		m.Layers = append(m.Layers, v1.Descriptor{Size: size, Digest: hash(t, "note")})
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestReadAttachedRejects fetches files from a registry that offers others than the wanted ones.
func TestReadAttachedRejects(t *testing.T) {
	h := newTestRegistry(t)
	image, other := hash(t, "the image"), hash(t, "another image")
	for title, c := range map[string]struct{ manifest, blob, code string }{
		"a good one":              {describe(t, image, 4), "note", ""},
		"of another image":        {describe(t, other, 4), "note", "attachment_other_image"},
		"of no image":             {`{"schemaVersion":2}`, "note", "attachment_other_image"},
		"no manifest":             {"{", "note", "attachment_other_image"},
		"without a part":          {describe(t, image), "note", "attachment_parts"},
		"of two parts":            {describe(t, image, 4, 4), "note", "attachment_parts"},
		"empty":                   {describe(t, image, 0), "", "attachment_size_invalid"},
		"of a negative size":      {describe(t, image, -1), "note", "attachment_size_invalid"},
		"larger than the limit":   {describe(t, image, registry.MaxAttachment+1), "note", "attachment_size_invalid"},
		"with other data":         {describe(t, image, 4), "nose", blob.CodeWrong},
		"longer than stated":      {describe(t, image, 4), "note and more", blob.CodeWrong},
		"shorter than stated":     {describe(t, image, 40), "note", blob.CodeWrong},
		"with a space at the end": {describe(t, image, 4) + " ", "note", ""},
	} {
		digest := hash(t, c.manifest)
		h.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.Contains(r.URL.Path, "/manifests/"):
				w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
				_, _ = w.Write([]byte(c.manifest))
			case strings.Contains(r.URL.Path, "/blobs/"):
				_, _ = w.Write([]byte(c.blob))
			default:
				return false
			}
			return true
		})
		file, err := client(h.name).ReadAttached(t.Context(), reference(t, h.name+"/app:1"), []v1.Hash{image}, digest)
		if fault.CodeOf(err) != c.code || (c.code == "" && string(file.Data) != c.blob) {
			t.Errorf("a file %s: got %q, error %v, want the code %q", title, file.Data, err, c.code)
		}
	}
}

// A registry cannot make the list of files too long.
func TestAttachedIsBounded(t *testing.T) {
	h := newTestRegistry(t)
	image := hash(t, "the image")
	var many bytes.Buffer
	fmt.Fprintf(&many, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{"digest":%q,"size":1}`, image)
	for range 1000 {
		fmt.Fprintf(&many, `,{"digest":%q,"size":1}`, image)
	}
	many.WriteString("]}")
	for title, c := range map[string]struct{ list, code string }{"1,001 files": {many.String(), "attached_many"}, "no JSON": {"{", "registry_failed"}} {
		h.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/referrers/") {
				return false
			}
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			_, _ = w.Write([]byte(c.list))
			return true
		})
		if list, err := client(h.name).Attached(t.Context(), reference(t, h.name+"/app:1"), []v1.Hash{image}); fault.CodeOf(err) != c.code {
			t.Errorf("a list with %s: got %d files, error %v, want the code %s", title, len(list), err, c.code)
		}
	}
	if _, err := registry.New(registry.Options{Rules: registry.Rules{Allow: []string{"ghcr.io"}}}).Attached(t.Context(), reference(t, h.name+"/app:1"), []v1.Hash{image}); fault.CodeOf(err) != "registry_not_allowed" {
		t.Errorf("a registry that is not allowed: got %v", err)
	}
}

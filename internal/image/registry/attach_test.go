package registry_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	server "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/manifest"
	"github.com/crannog/crannog/internal/image/registry"
)

// pulled publishes an image and returns it as the store has it.
func pulled(t *testing.T, h *testRegistry, ref string) manifest.Image {
	t.Helper()
	publish(t, h, ref)
	blobs := store(t)
	got, err := client(h.name).Pull(t.Context(), reference(t, h.name+"/"+ref), manifest.Host(), blobs, ignore)
	if err != nil {
		t.Fatal(err)
	}
	img, err := manifest.Load(blobs, got.Manifest)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// readReferrers returns the files that are attached to an image, by their types.
func readReferrers(t *testing.T, image name.Digest) map[string][]byte {
	t.Helper()
	found, err := imagetest.Referrers(image)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestAttach attaches files to an image in a registry with the interface for referrers, and in one
// without.
func TestAttach(t *testing.T) {
	for title, referrers := range map[string]bool{"referrers": true, "tag": false} {
		t.Run(title, func(t *testing.T) {
			h := newTestRegistry(t)
			h.inner = server.New(server.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)), server.WithReferrersSupport(referrers))
			img := pulled(t, h, "app:1")
			want := map[string]string{"application/spdx+json": `{"spdxVersion":"SPDX-2.3"}`, "text/plain": "a note"}
			digests := map[v1.Hash]bool{}
			for range 2 { // the second time, nothing changes
				for kind, text := range want {
					d, err := client(h.name).Attach(t.Context(), reference(t, h.name+"/app:1"), img, registry.Attachment{Type: kind, Data: []byte(text)})
					if err != nil {
						t.Fatal(err)
					}
					digests[d] = true
				}
			}
			if len(digests) != len(want) {
				t.Errorf("Attach returned %d digests, want %d", len(digests), len(want))
			}
			image := reference(t, h.name+"/app:1").Context().Digest(img.Digest.String())
			checkAttached(t, h, img.Digest, want)
			got := readReferrers(t, image)
			for kind, text := range want {
				if string(got[kind]) != text || len(got) != len(want) {
					t.Errorf("%s: got %q of %d files, want %q", kind, got[kind], len(got), text)
				}
			}
			if _, err := remote.Head(image.Context().Tag(strings.Replace(img.Digest.String(), ":", "-", 1))); (err == nil) == referrers {
				t.Errorf("the tag for registries without referrers: got error %v", err)
			}
		})
	}
}

// checkAttached lists the files that are attached to an image, and fetches each.
func checkAttached(t *testing.T, h *testRegistry, image v1.Hash, want map[string]string) {
	t.Helper()
	subjects := []v1.Hash{image}
	list, err := client(h.name).Attached(t.Context(), reference(t, h.name+"/app:1"), subjects)
	if err != nil || len(list) != len(want) {
		t.Fatalf("Attached: got %v, error %v, want %d files", list, err, len(want))
	}
	for _, a := range list {
		file, err := client(h.name).ReadAttached(t.Context(), reference(t, h.name+"/app:1"), subjects, a.Digest)
		if err != nil || file.Type != a.Type || a.Subject != image || want[a.Type] == "" || string(file.Data) != want[a.Type] {
			t.Errorf("ReadAttached of %+v: got %s %q, error %v", a, file.Type, file.Data, err)
		}
	}
}

func TestAttachRejects(t *testing.T) {
	h := newTestRegistry(t)
	img := pulled(t, h, "app:1")
	good := registry.Attachment{Type: "text/plain", Data: []byte("x")}
	other := img
	other.Digest.Hex = strings.Repeat("0", 64)
	for title, c := range map[string]struct {
		client *registry.Client
		image  manifest.Image
		a      registry.Attachment
		code   string
	}{
		"an image that was not pushed": {client(h.name), other, good, "image_not_found"},
		"no TLS":                       {client(), img, good, "registry_insecure"},
		"another registry":             {registry.New(registry.Options{Rules: registry.Rules{Insecure: []string{h.name}, Allow: []string{"ghcr.io"}}}), img, good, "registry_not_allowed"},
		"no type":                      {client(h.name), img, registry.Attachment{Data: []byte("x")}, "attachment_type_invalid"},
		"a type with parameters":       {client(h.name), img, registry.Attachment{Type: "text/plain; charset=utf-8", Data: []byte("x")}, "attachment_type_invalid"},
		"a type with a line break":     {client(h.name), img, registry.Attachment{Type: "text/pl\nain", Data: []byte("x")}, "attachment_type_invalid"},
		"an empty file":                {client(h.name), img, registry.Attachment{Type: "text/plain"}, "attachment_size_invalid"},
		"a file that is too large":     {client(h.name), img, registry.Attachment{Type: "text/plain", Data: bytes.Repeat([]byte("x"), registry.MaxAttachment+1)}, "attachment_size_invalid"},
	} {
		_, err := c.client.Attach(t.Context(), reference(t, h.name+"/app:1"), c.image, c.a)
		if fault.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want the code %s", title, err, c.code)
		}
	}
	if got := readReferrers(t, reference(t, h.name+"/app:1").Context().Digest(img.Digest.String())); len(got) != 0 {
		t.Errorf("rejected files were attached: %v", got)
	}
}

// An error of a registry while it stores the file is reported.
func TestAttachReportsRegistryError(t *testing.T) {
	h := newTestRegistry(t)
	img := pulled(t, h, "app:1")
	h.setFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		w.WriteHeader(http.StatusForbidden)
		return true
	})
	if _, err := client(h.name).Attach(t.Context(), reference(t, h.name+"/app:1"), img, registry.Attachment{Type: "text/plain", Data: []byte("x")}); fault.CodeOf(err) != "registry_denied" {
		t.Errorf("Attach to a registry that accepts no uploads: got %v, want registry_denied", err)
	}
}

package library_test

import (
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
)

// A feature of development containers can be pulled and described, and no sandbox starts from it.
func TestFeatures(t *testing.T) {
	host := imagetest.Registry(t)
	l := openLibrary(t, t.TempDir(), host)
	for name, files := range map[string][]imagetest.File{
		"good":    {{Name: "install.sh", Content: "#!/bin/sh\n"}, {Name: "./devcontainer-feature.json", Content: `{"id": "good"}`}},
		"other":   {{Name: "devcontainer-feature.json", Content: `{"id": "other"}`}},
		"missing": {{Name: "install.sh", Content: "#!/bin/sh\n"}},
		"link":    {{Name: "devcontainer-feature.json", Link: "/etc/passwd"}},
		"large":   {{Name: "devcontainer-feature.json", Content: strings.Repeat(" ", 300<<10)}},
	} {
		img, err := imagetest.Feature(imagetest.Layer(t, files...))
		if err != nil {
			t.Fatal(err)
		}
		ref := host + "/feature/" + name + ":1"
		imagetest.Publish(t, ref, img)
		if _, err := l.Pull(t.Context(), ref, "", ignore); err != nil {
			t.Errorf("Pull of %s: %v", name, err)
		}
		got, err := l.Inspect(ref)
		if want := `{"id": "` + name + `"}`; name == "good" || name == "other" {
			if err != nil || string(got.Feature) != want || got.Root != nil {
				t.Errorf("Inspect of %s: got %+v, %v, want %s and no files", name, got, err, want)
			}
		} else if fault.KindOf(err) != fault.Invalid {
			t.Errorf("Inspect of %s: got error %v, want Invalid", name, err)
		}
		if _, err := l.ResolveImage(t.Context(), ref, false); fault.CodeOf(err) != library.CodeFeature {
			t.Errorf("ResolveImage of %s: got error %v, want %s", name, err, library.CodeFeature)
		}
		if _, err := l.ResolveDigest(t.Context(), got.Digest.String()); err == nil {
			t.Errorf("ResolveDigest of %s succeeded", name)
		}
	}
	// One feature that cannot be read does not hide the other images.
	if all, err := l.List(); err != nil || len(all) != 5 {
		t.Errorf("List: got %d images, %v, want 5", len(all), err)
	}
	imagetest.Publish(t, host+"/app:1", appImage(t, "x"))
	if img, err := l.Pull(t.Context(), host+"/app:1", "", ignore); err != nil || img.Root == nil {
		t.Fatalf("Pull of an image with programs: got %+v, %v", img, err)
	}
	if img, err := l.Inspect(host + "/app:1"); err != nil || img.Feature != nil {
		t.Errorf("Inspect of an image with programs: got the feature %q, %v", img.Feature, err)
	}
}

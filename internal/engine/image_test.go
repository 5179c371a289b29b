package engine_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// imageOfKind holds an image of every kind.
var imageOfKind = map[engine.ImageKind]engine.Image{
	engine.ImageHostView: engine.ViewOf("/r", "/g", engine.Bind{Source: "/s", Target: "/t", Owned: true}),
	engine.ImageLayers:   {Layers: &engine.Layers{Digest: "sha256:1", Files: []string{"/a", "/b"}}, Guest: "/g"},
	engine.ImageOCI:      {OCI: &engine.OCI{Ref: "python:3.12", Digest: "sha256:1"}, Guest: "/g"},
	engine.ImageDisk:     {Disk: &engine.Disk{Path: "/d", Format: "raw"}, Guest: "/g"},
	engine.ImageModule:   {HostView: &engine.HostView{Dir: "/m", Runner: &engine.Runner{Path: "/runner", Deterministic: true}}},
}

func TestImageCheck(t *testing.T) {
	all := slices.Sorted(maps.Keys(imageOfKind))
	for kind, image := range imageOfKind {
		if image.Kind() != kind {
			t.Errorf("an image of the kind %s has the kind %q", kind, image.Kind())
		}
		if err := image.Check(all); err != nil {
			t.Errorf("Check of %s on an engine with all kinds: %v", kind, err)
		}
		others := slices.DeleteFunc(slices.Clone(all), func(k engine.ImageKind) bool { return k == kind })
		if err := image.Check(others); fault.KindOf(err) != fault.Unsupported || fault.CodeOf(err) != "image_unsupported" {
			t.Errorf("Check of %s on an engine without this kind: %v", kind, err)
		}
		two := image
		two.HostView, two.Disk = &engine.HostView{Dir: "/r"}, &engine.Disk{Path: "/m"}
		if err := two.Check(all); two.Kind() != "" || fault.CodeOf(err) != "image_invalid" {
			t.Errorf("Check of an image with %s and two other kinds: %v", kind, err)
		}
	}
	if err := (engine.Image{Guest: "/g"}).Check(all); fault.KindOf(err) != fault.Invalid || fault.CodeOf(err) != "image_invalid" {
		t.Errorf("no image: %v", err)
	}
}

func TestImageSurvivesStoring(t *testing.T) {
	for kind, image := range imageOfKind {
		data, err := json.Marshal(image)
		if err != nil {
			t.Fatal(err)
		}
		var read engine.Image
		if err := json.Unmarshal(data, &read); err != nil || !reflect.DeepEqual(read, image) || !read.Equal(image) {
			t.Errorf("%s is stored as %s and read as %+v, %v", kind, data, read, err)
		}
		for other, image := range imageOfKind {
			if other != kind && (image.Equal(read) || read.Equal(image)) {
				t.Errorf("%s equals %s", kind, other)
			}
		}
	}
}

// Earlier versions started sandboxes only from host directories, and stored images in this form.
func TestImagesOfEarlierVersionsAreReadable(t *testing.T) {
	const view = `{"Dir":"/r","Binds":[{"Source":"/usr","Target":"/usr"},{"Source":"/p","Target":"/.crannog/programs/1","Owned":true}],"Guest":"/.crannog/crannog-guest"}`
	want := engine.ViewOf("/r", "/.crannog/crannog-guest",
		engine.Bind{Source: "/usr", Target: "/usr"}, engine.Bind{Source: "/p", Target: "/.crannog/programs/1", Owned: true})
	var image engine.Image
	if err := json.Unmarshal([]byte(view), &image); err != nil || !reflect.DeepEqual(image, want) {
		t.Errorf("read as %+v, %v", image, err)
	}
	// Those versions must be able to read what is written now.
	if data, err := json.Marshal(want); err != nil || string(data) != view {
		t.Errorf("stored as %s, %v", data, err)
	}
	var spec engine.Spec
	if err := json.Unmarshal([]byte(`{"ID":"a","Hostname":"h","Root":`+view+`,"Workspace":"/w","Mounts":null}`), &spec); err != nil || !spec.Image.Equal(want) || spec.Workspace != "/w" {
		t.Errorf("a specification is read as %+v, %v", spec, err)
	}
	// A version that did not store the image wrote these rows.
	for _, none := range []string{`{"Dir":"","Binds":null,"Guest":""}`, `{}`} {
		if err := json.Unmarshal([]byte(none), &image); err != nil || image.Kind() != "" || !image.Equal(engine.Image{}) {
			t.Errorf("%s is read as %+v, %v", none, image, err)
		}
	}
	if err := json.Unmarshal([]byte(`{"Dir":1}`), &image); err == nil {
		t.Error("a number is read as a directory")
	}
}

func TestShowAddsBinds(t *testing.T) {
	shared := engine.ViewOf("/r", "/g", make([]engine.Bind, 1, 8)...)
	one, err := shared.Show(engine.Bind{Source: "/1", Target: "/1"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := shared.Show(engine.Bind{Source: "/2", Target: "/2"})
	if err != nil || one.View().Binds[1].Source != "/1" || two.View().Binds[1].Source != "/2" || len(shared.View().Binds) != 1 {
		t.Errorf("the shared image is %v, its copies are %v and %v, %v; want one bind more in each copy", shared.View(), one.View(), two.View(), err)
	}
	for kind, image := range imageOfKind {
		_, err := image.Show(engine.Bind{Source: "/1", Target: "/1"})
		// A view of modules is a view of the host as well.
		showsHost := kind == engine.ImageHostView || kind == engine.ImageModule
		if (err == nil) != showsHost || err != nil && fault.CodeOf(err) != "image_hides_host" {
			t.Errorf("Show of %s returned %v, want an error: %v", kind, err, !showsHost)
		}
		if same, err := image.Show(); err != nil || !same.Equal(image) {
			t.Errorf("Show of %s without binds changed the image: %v", kind, err)
		}
	}
}

func TestWithGuestOfCopiesImage(t *testing.T) {
	old := engine.ViewOf("/r", "/g", engine.Bind{Source: "/usr", Target: "/usr"}, engine.Bind{Source: "/guest-1", Target: "/g"})
	updated := old.WithGuestOf(engine.ViewOf("/r", "/g2", engine.Bind{Source: "/other", Target: "/usr"}, engine.Bind{Source: "/guest-2", Target: "/g2"}))
	want := engine.ViewOf("/r", "/g", engine.Bind{Source: "/usr", Target: "/usr"}, engine.Bind{Source: "/guest-2", Target: "/g"})
	if !updated.Equal(want) || old.View().Binds[1].Source != "/guest-1" {
		t.Errorf("the copy is %v and the original %v; want the new guest only in the copy", updated.View(), old.View())
	}
	if oci := imageOfKind[engine.ImageOCI]; !oci.WithGuestOf(old).Equal(oci) {
		t.Error("WithGuestOf changed an OCI image")
	}
}

func TestPackedViewIsWhole(t *testing.T) {
	binds := []engine.Bind{{Source: "/s", Target: "/t"}}
	view := engine.HostView{Dir: "/r", Owners: "/o", Binds: binds, Packed: &engine.Packed{File: "/f", Owners: "/o", Binds: binds}}
	if whole := view.Whole(); whole == nil || whole.File != "/f" {
		t.Errorf("Whole: got %+v", whole)
	}
	image := engine.Image{HostView: &view, Guest: "/t"}
	data, err := json.Marshal(image)
	if err != nil {
		t.Fatal(err)
	}
	var read engine.Image
	if err := json.Unmarshal(data, &read); err != nil || !reflect.DeepEqual(read, image) || !read.Equal(image) {
		t.Errorf("stored as %s and read as %+v, %v", data, read, err)
	}
	more, err := image.Show(engine.Bind{Source: "/x", Target: "/y"})
	if err != nil || more.View().Whole() != nil {
		t.Errorf("with another bind: %+v, %v", more, err)
	}
	for name, change := range map[string]func(*engine.HostView){
		"not packed":    func(v *engine.HostView) { v.Packed = nil },
		"other owners":  func(v *engine.HostView) { v.Owners = "" },
		"another guest": func(v *engine.HostView) { v.Binds = []engine.Bind{{Source: "/new", Target: "/t"}} },
	} {
		other := view
		change(&other)
		if other.Whole() != nil {
			t.Errorf("%s: the view is whole", name)
		}
		if (engine.Image{HostView: &other, Guest: "/t"}).Equal(image) {
			t.Errorf("%s: the images are equal", name)
		}
	}
}

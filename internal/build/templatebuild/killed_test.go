package templatebuild_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"

	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
)

// A server that is killed leaves the record of a running build, its files, its sandboxes and perhaps
// the image that has no template yet. The next one marks the build as failed, and removes the rest.
func TestAKilledServerLeavesNoBuild(t *testing.T) {
	host := imagetest.Registry(t)
	dir := t.TempDir()
	r := open(t, dir, host)
	image := r.pull(host)
	made := r.request("app")
	if err := r.Start(t.Context(), alice, made.Template, made.ID, templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "RUN", Args: []string{"wait"}}}}); err != nil {
		t.Fatal(err)
	}
	<-r.boxes.waits
	if len(r.left()) != 1 {
		t.Fatalf("a running build has %q", r.left())
	}
	config, err := empty.Image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.library.AddBuilt(t.Context(), "build.invalid/"+made.ID, config, nil, func(library.Progress) {}); err != nil {
		t.Fatal(err)
	}

	// A server that starts while the other lives removes nothing.
	if again := open(t, dir, host); len(again.left()) != 2 || len(again.boxes.cleaned) != 0 {
		t.Fatalf("beside a live server %q are left, and %q cleaned", again.left(), again.boxes.cleaned)
	}
	path := filepath.Join(dir, "builds", "templates", "records", made.ID+".json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record templatebuild.Record
	if err := json.Unmarshal(data, &record); err != nil {
		t.Fatal(err)
	}
	record.Process.Start = "another boot/1"
	if data, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	again := open(t, dir, host)
	now, _, err := again.Status(alice, made.Template, made.ID, 0, 10)
	if err != nil || now.State != templatebuild.Failed || now.Code != "build_interrupted" {
		t.Errorf("the build is %+v, %v", now, err)
	}
	if left := again.left(); len(left) != 0 || len(again.boxes.cleaned) != 1 || again.boxes.cleaned[0] != made.ID {
		t.Errorf("%q are left, and the sandboxes of %q are removed", left, again.boxes.cleaned)
	}
	// Nothing keeps a template of the same name from being built.
	other, err := again.Request(context.WithoutCancel(t.Context()), alice, templatebuild.Request{Name: "app"})
	if err != nil || other.Template == "" {
		t.Errorf("another build of the template: %+v, %v", other, err)
	}
}

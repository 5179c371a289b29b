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

// A killed server leaves the record of a running build, its files, its sandboxes and perhaps an
// image without a template. The next server marks the build as failed and removes the rest.
func TestOpenRemovesBuildOfKilledServer(t *testing.T) {
	host := imagetest.Registry(t)
	dir := t.TempDir()
	r := openService(t, dir, host)
	image := r.pull(host)
	record := r.request("app")
	if err := r.Start(t.Context(), alice, record.Template, record.ID, templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "RUN", Args: []string{"wait"}}}}); err != nil {
		t.Fatal(err)
	}
	<-r.sandboxes.waits
	if len(r.leftovers()) != 1 {
		t.Fatalf("a running build has %q", r.leftovers())
	}
	config, err := empty.Image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.library.AddBuilt(t.Context(), "build.invalid/"+record.ID, config, nil, func(library.Progress) {}); err != nil {
		t.Fatal(err)
	}

	// A server that starts while the first one still runs removes nothing.
	if again := openService(t, dir, host); len(again.leftovers()) != 2 || len(again.sandboxes.cleaned) != 0 {
		t.Fatalf("beside a live server %q are left, and %q cleaned", again.leftovers(), again.sandboxes.cleaned)
	}
	path := filepath.Join(dir, "builds", "templates", "records", record.ID+".json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stored templatebuild.Record
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	stored.Process.Start = "another boot/1"
	if data, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	again := openService(t, dir, host)
	status, _, err := again.Status(alice, record.Template, record.ID, 0, 10)
	if err != nil || status.State != templatebuild.Failed || status.Code != "build_interrupted" {
		t.Errorf("Status: got %+v, error %v", status, err)
	}
	if files := again.leftovers(); len(files) != 0 || len(again.sandboxes.cleaned) != 1 || again.sandboxes.cleaned[0] != record.ID {
		t.Errorf("after the restart: files %q are left, and sandboxes of the builds %q were removed", files, again.sandboxes.cleaned)
	}
	// A template of the same name can be built again.
	other, err := again.Request(context.WithoutCancel(t.Context()), alice, templatebuild.Request{Name: "app"})
	if err != nil || other.Template == "" {
		t.Errorf("Request after the restart: got %+v, error %v", other, err)
	}
}

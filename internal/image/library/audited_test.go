package library_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

// Each change of the library, and each failed attempt, has an entry with the caller.
func TestImageChangesHaveAuditEntries(t *testing.T) {
	host := imagetest.Registry(t)
	imagetest.Publish(t, host+"/app:1", imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: "a"})))
	unaudited := openLibrary(t, t.TempDir(), host)
	var memory audittest.Log
	images, caller := library.NewAudited(unaudited, auditlog.New(&memory, slog.New(slog.DiscardHandler))), sandbox.Principal{Local: true}
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "image.tar")

	if _, err := images.Pull(ctx, caller, host+"/app:1", "", ignore); err != nil {
		t.Fatal(err)
	}
	if _, err := images.Pull(ctx, caller, host+"/app:2", "", ignore); err == nil {
		t.Error("a missing image was pulled")
	}
	if err := images.Push(ctx, caller, host+"/app:1", host+"/copy:1", ignore); err != nil {
		t.Error(err)
	}
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := images.Export(ctx, host+"/app:1", "oci", out); err != nil {
		t.Error(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := images.Remove(ctx, caller, host+"/app:1"); err != nil {
		t.Error(err)
	}
	if _, err := images.Prune(ctx, caller); err != nil {
		t.Error(err)
	}
	if _, err := images.Import(ctx, caller, file, "app:3", "", ignore); err != nil {
		t.Error(err)
	}

	var got []string
	for _, e := range memory.Entries() {
		var d payload.Action
		if err := json.Unmarshal(e.Data, &d); err != nil || e.Kind != audit.Action || e.Actor != caller.Actor() {
			t.Errorf("entry %+v: %v", e, err)
		}
		got = append(got, d.Do+" "+d.Ref+" "+d.Outcome)
	}
	want := []string{
		"image.pull " + host + "/app:1 ok", "image.pull " + host + "/app:2 image_not_found", "image.push " + host + "/copy:1 ok",
		"image.remove " + host + "/app:1 ok", "image.prune  ok", "image.import " + file + " ok",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the audit log has\n%q, want\n%q", got, want)
	}
}

package owners

import (
	"reflect"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/fsimpl/overlay"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

func TestParseReadsTextOfPlan(t *testing.T) {
	for _, want := range []Plan{
		{},
		{UID: 1000, GID: 1001, Places: []string{"/workspace", "/p\"\n\xc3\xa9"}, Covers: []Cover{{Path: "/workspace/a"}, {Path: "/workspace/b", Blank: true}}},
	} {
		text, err := want.Text()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("the text %s is parsed as %+v, %v; want %+v", text, got, err, want)
		}
	}
	if got, err := Parse(""); err != nil || !reflect.DeepEqual(got, Plan{}) {
		t.Errorf("empty text is parsed as %+v, %v; want the zero Plan", got, err)
	}
	if _, err := Parse("{"); err == nil {
		t.Error("Parse accepted truncated text")
	}
}

func TestOwnsPathsBelowPlaces(t *testing.T) {
	p := Plan{Places: []string{"/workspace", "/.crannog/programs/1"}}
	for path, want := range map[string]bool{
		"/workspace": true, "/workspace/a/b": true, "/.crannog/programs/1/x": true,
		"/workspaces": false, "/": false, "/.crannog": false, "/.crannog/programs/10": false, "": false,
	} {
		if p.Owns(path) != want {
			t.Errorf("Owns(%q) = %v, want %v", path, !want, want)
		}
	}
}

// If a version of gVisor has another name or type for a field, that is an error.
func TestPrivateRejectsUnknownFields(t *testing.T) {
	type other struct{ opts *overlay.FilesystemOptions }
	if _, err := private[overlay.FilesystemOptions](&other{opts: &overlay.FilesystemOptions{}}, "opts"); err == nil || !strings.Contains(err.Error(), "opts of") {
		t.Errorf("a field of another type: got %v, want an error", err)
	}
	if _, err := private[*vfs.Filesystem](&other{}, "filesystem"); err == nil {
		t.Error("a field with another name was accepted")
	}
	if _, err := private[int](7, "x"); err == nil {
		t.Error("a value that is no pointer was accepted")
	}
	if _, err := private[*vfs.Filesystem](&vfs.Mount{}, "fs"); err != nil {
		t.Errorf("the field of this version: %v", err)
	}
	var s struct{ hidden int }
	if p, err := private[int](&s, "hidden"); err != nil || p != &s.hidden {
		t.Errorf("got %v, %v; want the address of the field", p, err)
	}
}

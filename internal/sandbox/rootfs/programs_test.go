package rootfs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func TestHostPrograms(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"tree/bin/x", "tree/.env", "tree/deep/.env", "tree/ok/a", "alone"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("1"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"link": "alone", "tree/linked": "deep"} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	binds, err := ResolvePrograms([]string{filepath.Join(dir, "link"), filepath.Join(dir, "tree")})
	want := []engine.Bind{{Source: real + "/alone", Target: "/.crannog/programs/file-1", Owned: true}, {Source: real + "/tree", Target: "/.crannog/programs/2", Owned: true}}
	if err != nil || !slices.Equal(binds, want) {
		t.Fatalf("ResolvePrograms: %v, %+v", err, binds)
	}
	shared := []engine.Bind{{Source: "/usr", Target: "/usr"}}
	changed := sandbox.Template{Image: engine.ViewOf("", "", shared...), Revision: "r"}
	unchanged := changed
	if err := AddPrograms(&changed, binds); err != nil {
		t.Fatal(err)
	}
	if len(unchanged.Image.View().Binds) != 1 || len(changed.Image.View().Binds) != 3 || !strings.HasPrefix(changed.Revision, "r+") {
		t.Errorf("got %+v, and the original template is %+v", changed, unchanged)
	}
	// Saved memory is restored only with the same programs.
	same, err := programsRevision(changed.Image)
	if err != nil || "r"+same != changed.Revision {
		t.Errorf("%v: %s is not %s", err, same, changed.Revision)
	}
	if err := os.WriteFile(filepath.Join(dir, "tree/ok/a"), []byte("22"), 0o755); err != nil {
		t.Fatal(err)
	}
	if other, err := programsRevision(changed.Image); err != nil || other == same {
		t.Errorf("%v: a changed program has the same revision", err)
	}
	if none, err := programsRevision(engine.ViewOf("", "", shared...)); err != nil || none != "" {
		t.Errorf("without programs: %v %q", err, none)
	}
	p, _, err := policy.Compile(policy.Layer{Kind: policy.LayerTask, Document: policy.Document{Policy: "v1", Level: "standard"}})
	if err != nil {
		t.Fatal(err)
	}
	var c Masks
	if err := c.maskPrograms(changed.Image, p.Files().Matcher()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(c.hide)
	if want := []string{"/.crannog/programs/2/.env", "/.crannog/programs/2/deep/.env"}; !slices.Equal(c.hide, want) {
		t.Errorf("hidden paths are %v, want %v", c.hide, want)
	}
	fromSnapshot := sandbox.Template{Origin: &sandbox.Stored{}}
	if err := AddPrograms(&fromSnapshot, binds); fault.CodeOf(err) != "snapshot_programs" {
		t.Errorf("programs for a snapshot: got error %v, want snapshot_programs", err)
	}
}

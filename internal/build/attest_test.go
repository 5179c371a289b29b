package build_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/fault"
)

// A signed statement names the inputs of a build, also if every step came from the cache, and no
// values of arguments.
func TestBuildIsAttested(t *testing.T) {
	dir := t.TempDir()
	r := openService(t, dir)
	files := map[string]string{"f": "content"}
	base, err := r.build(t, build.Request{Tag: "base:1", Dockerfile: []byte(simple)}, files)
	if err != nil {
		t.Fatal(err)
	}
	key, err := provenance.NewKeys(filepath.Join(dir, "keys")).Signer()
	if err != nil {
		t.Fatal(err)
	}
	req := build.Request{
		Tag: "app:1", Dockerfile: []byte("FROM base:1\nARG SECRETIVE\nCOPY f /g\n"), Args: map[string]string{"SECRETIVE": "value-of-argument"},
		Epoch: time.Unix(1_000_000_000, 0), Provenance: true,
	}
	for range 2 {
		img, err := r.build(t, req, files)
		if err != nil {
			t.Fatal(err)
		}
		list, err := r.List(local)
		if err != nil {
			t.Fatal(err)
		}
		st, found := provenance.VerifyImage(list[0].Provenance, provenance.ImageCheck{Key: key.Public, Digest: img.Digest.String(), Policy: "sha256:61cc"})
		if len(found) != 0 {
			t.Fatalf("VerifyImage: got findings %v, want none", found)
		}
		d := st.Predicate.BuildDefinition
		if e := d.ExternalParameters; len(e.Dockerfile) != 64 || len(e.Context) != 64 || !slices.Equal(e.Args, []string{"SECRETIVE"}) || e.Epoch != 1_000_000_000 || e.Level != "standard" {
			t.Errorf("parameters: got %+v, want two checksums, the name of the argument, the time and the level", e)
		}
		if len(d.ResolvedDependencies) != 1 || d.ResolvedDependencies[0].Name != "base:1" || d.ResolvedDependencies[0].Digest.SHA256 != base.Digest.Hex {
			t.Errorf("dependencies: got %+v, want base:1 with the digest %s", d.ResolvedDependencies, base.Digest.Hex)
		}
		if run := st.Predicate.RunDetails; run.Metadata.InvocationID != list[0].ID || run.Builder.Version["crannog"] != "v9" {
			t.Errorf("run: got %+v, want the build %s and the version v9", run, list[0].ID)
		}
	}
	if signed := r.audit.Entries(audit.ProvenanceSigned); len(signed) != 2 {
		t.Errorf("the audit log has %d signatures, want 2", len(signed))
	}
}

func TestUnsignedBuildHasNoStatement(t *testing.T) {
	r := openService(t, t.TempDir())
	if _, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(simple)}, map[string]string{"f": "content"}); err != nil {
		t.Fatal(err)
	}
	if list, err := r.List(local); err != nil || len(list) != 1 || list[0].Provenance != nil {
		t.Errorf("List: got %+v, %v, want one build without a statement", list, err)
	}
}

// If the audit log cannot be written, the caller gets no signature.
func TestStatementNeedsAuditLog(t *testing.T) {
	r := openService(t, t.TempDir())
	r.audit.Fail(func(d audit.Draft) bool { return d.Kind == audit.ProvenanceSigned })
	_, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(simple), Provenance: true}, map[string]string{"f": "content"})
	if fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Run: got %v, want Unavailable", err)
	}
	if list, err := r.List(local); err != nil || len(list) != 1 || list[0].Provenance != nil || list[0].State != build.Failed {
		t.Errorf("List: got %+v, %v, want a failed build without a statement", list, err)
	}
}

package manifest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/manifest"
)

// document returns a value as JSON.
func document(t *testing.T, of any) []byte {
	t.Helper()
	data, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// validManifest returns a manifest with one layer.
func validManifest() *v1.Manifest {
	d := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("a", 64)}
	return &v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: 2, Digest: d},
		Layers: []v1.Descriptor{{MediaType: types.OCILayer, Size: 3, Digest: d}},
	}
}

func TestParseRejectsInvalidManifests(t *testing.T) {
	if _, err := manifest.Parse(document(t, validManifest())); err != nil {
		t.Fatalf("Parse of a valid manifest: %v", err)
	}
	for name, change := range map[string]func(*v1.Manifest){
		"an artifact":             func(m *v1.Manifest) { m.Config.MediaType = "application/vnd.cncf.helm.config.v1+json" },
		"too many layers":         func(m *v1.Manifest) { m.Layers = make([]v1.Descriptor, 501) },
		"a large configuration":   func(m *v1.Manifest) { m.Config.Size = 1 << 30 },
		"a negative size":         func(m *v1.Manifest) { m.Layers[0].Size = -1 },
		"an endless layer":        func(m *v1.Manifest) { m.Layers[0].Size = 1 << 50 },
		"a layer of unknown type": func(m *v1.Manifest) { m.Layers[0].MediaType = "application/octet-stream" },
		"a feature's layer":       func(m *v1.Manifest) { m.Layers[0].MediaType = "application/vnd.devcontainers.layer.v1+tar" },
		"a feature of two layers": func(m *v1.Manifest) {
			m.Config.MediaType = manifest.FeatureConfig
			m.Layers = append(m.Layers, m.Layers[0])
		},
		"a large feature": func(m *v1.Manifest) {
			m.Config.MediaType = manifest.FeatureConfig
			m.Layers[0].Size = 1 << 30
		},
	} {
		m := validManifest()
		change(m)
		if _, err := manifest.Parse(document(t, m)); fault.CodeOf(err) != manifest.CodeInvalid {
			t.Errorf("%s: Parse: error %v", name, err)
		}
	}
}

func TestLoadComparesConfigurationAndManifest(t *testing.T) {
	blobs, err := blob.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put := func(of any) v1.Hash {
		d, err := blobs.Put(document(t, of))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for name, c := range map[string]struct {
		config v1.ConfigFile
		code   string
	}{
		"matching":          {v1.ConfigFile{OS: "linux", RootFS: v1.RootFS{DiffIDs: []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("b", 64)}}}}, ""},
		"one layer missing": {v1.ConfigFile{OS: "linux"}, manifest.CodeInvalid},
		"another system":    {v1.ConfigFile{OS: "windows", RootFS: v1.RootFS{DiffIDs: []v1.Hash{digestFor("amd64")}}}, manifest.CodePlatform},
	} {
		m := validManifest()
		m.Config.Digest = put(c.config)
		_, err := manifest.Load(blobs, put(m))
		if c.code == "" && err != nil || c.code != "" && fault.CodeOf(err) != c.code {
			t.Errorf("%s: Load: error %v", name, err)
		}
	}
}

// digestFor returns a different digest for each architecture.
func digestFor(arch string) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%064x", arch)}
}

func TestChooseSelectsPlatform(t *testing.T) {
	descriptor := func(arch, variant string) v1.Descriptor {
		return v1.Descriptor{MediaType: types.OCIManifestSchema1, Digest: digestFor(arch), Platform: &v1.Platform{OS: "linux", Architecture: arch, Variant: variant}}
	}
	attestation := descriptor("amd64", "")
	attestation.Annotations = map[string]string{"vnd.docker.reference.type": "attestation-manifest"}
	index := document(t, v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{
		attestation, descriptor("arm", "v7"), descriptor("arm64", "v8"), descriptor("amd64", ""),
	}})
	for text, want := range map[string]string{"linux/amd64": "amd64", "linux/arm64": "arm64", "linux/arm/v7": "arm"} {
		p, err := manifest.ParsePlatform(text)
		if err != nil {
			t.Fatal(err)
		}
		d, err := manifest.Choose(index, p)
		if err != nil || d.Digest != digestFor(want) || d.Annotations != nil {
			t.Errorf("Choose(%s): got %+v, error %v", text, d, err)
		}
	}
	_, err := manifest.Choose(index, manifest.Platform{OS: "linux", Architecture: "riscv64"})
	if fault.CodeOf(err) != manifest.CodePlatform || !strings.Contains(fault.HintOf(err), "linux/arm64") {
		t.Errorf("Choose of a missing platform: got %v, hint %q", err, fault.HintOf(err))
	}
	for _, text := range []string{"amd64", "windows/amd64", "linux/", "a/b/c/d"} {
		if _, err := manifest.ParsePlatform(text); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParsePlatform(%s): error %v, want kind Invalid", text, err)
		}
	}
}

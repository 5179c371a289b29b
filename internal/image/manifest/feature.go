package manifest

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Media types of features of development containers, as their specification has them. Such an
// artifact has one layer, an uncompressed tar with the files of the feature, and an empty
// configuration.
const (
	FeatureConfig types.MediaType = "application/vnd.devcontainers"
	featureLayer  types.MediaType = "application/vnd.devcontainers.layer.v1+tar"
)

// maxFeature bounds the archive of a feature, which is an installation script with its files.
const maxFeature = 64 << 20

// Feature reports whether this is a feature of development containers, and not an image with
// programs. A build can copy its files, but no sandbox starts from it.
func (i Image) Feature() bool { return isFeature(i.Manifest) }

func isFeature(m *v1.Manifest) bool {
	return m.Config.MediaType == FeatureConfig && len(m.Layers) == 1
}

// featureConfig returns the configuration of a feature. Its own one is the same empty document for
// all features. An uncompressed layer has the digest of its content.
func featureConfig(m *v1.Manifest) *v1.ConfigFile {
	return &v1.ConfigFile{RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{m.Layers[0].Digest}}}
}

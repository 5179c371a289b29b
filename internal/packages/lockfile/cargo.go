package lockfile

import (
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/crannog/crannog/internal/packages"
)

// cargoLock is a Cargo.lock.
type cargoLock struct {
	Package []struct {
		Name     string `toml:"name"`
		Version  string `toml:"version"`
		Source   string `toml:"source"`
		Checksum string `toml:"checksum"`
	} `toml:"package"`
	// Metadata has the checksums of version 1, by "checksum NAME VERSION (SOURCE)".
	Metadata map[string]string `toml:"metadata"`
}

// unmarshalTOML parses a document that is not nested too deep.
func unmarshalTOML(text []byte, into any) error {
	if len(text) > maxTOML {
		return errTooLarge
	}
	if err := checkDepth(string(text), true); err != nil {
		return err
	}
	return toml.Unmarshal(text, into)
}

// parseCargo reads all versions.
func parseCargo(text []byte, c *collector) error {
	var file cargoLock
	if err := unmarshalTOML(text, &file); err != nil {
		return err
	}
	for _, p := range file.Package {
		if p.Source == "" {
			continue // a part of the project itself
		}
		if p.Checksum == "" {
			p.Checksum = file.Metadata["checksum "+p.Name+" "+p.Version+" ("+p.Source+")"]
		}
		var digest packages.Digest
		if strings.HasPrefix(p.Source, "registry+") || strings.HasPrefix(p.Source, "sparse+") {
			digest, _ = packages.HexDigest("sha256", p.Checksum)
		}
		if err := c.add(packages.Crates, p.Name, p.Version, digest); err != nil {
			return err
		}
	}
	return nil
}

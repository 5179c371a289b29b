package daemon

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/provenance"
)

// provenanceKeys are what signs for what comes out of sandboxes.
func (d *Daemon) provenanceKeys() *provenance.Keys {
	return provenance.NewKeys(filepath.Join(d.options.StateDir, provenance.DirName))
}

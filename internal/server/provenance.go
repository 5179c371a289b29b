package server

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/audit/provenance"
)

// provenanceKeys returns the keys that sign statements about files that leave sandboxes.
func (d *Server) provenanceKeys() *provenance.Keys {
	return provenance.NewKeys(filepath.Join(d.options.StateDir, provenance.DirName))
}

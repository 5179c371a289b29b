package server

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/audit/provenance"
)

// provenanceKeys sign statements about files that are exported from sandboxes.
func (d *Server) provenanceKeys() *provenance.Keys {
	return provenance.NewKeys(filepath.Join(d.options.StateDir, provenance.DirName))
}

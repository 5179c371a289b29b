package server

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/audit/provenance"
)

// provenanceKeys are what signs for what comes out of sandboxes.
func (d *Server) provenanceKeys() *provenance.Keys {
	return provenance.NewKeys(filepath.Join(d.options.StateDir, provenance.DirName))
}

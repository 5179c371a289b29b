package server

import (
	"fmt"

	"github.com/crannog/crannog/internal/packages/keyring"
	packagestore "github.com/crannog/crannog/internal/packages/store"
)

// PackageOptions configure the package cache. The zero value is valid.
type PackageOptions struct {
	// Budget is the disk space in bytes. 0 means the default.
	Budget int64
	// Keyrings are files with keys that may sign Debian archives, besides those of the host.
	Keyrings []string
}

// openPackages opens the package cache, and brings its keys of archives up to date.
func openPackages(o Options) (*packagestore.Store, error) {
	cache, err := packagestore.Open(o.StateDir, o.Packages.Budget)
	if err != nil {
		return nil, err
	}
	if err := keyring.Refresh(o.StateDir, o.Packages.Keyrings, o.Log); err != nil {
		return nil, fmt.Errorf("package cache: %w", err)
	}
	return cache, nil
}

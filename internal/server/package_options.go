package server

import (
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/clamd"
	"github.com/crannog/crannog/internal/packages/examine"
	"github.com/crannog/crannog/internal/packages/keyring"
	packagestore "github.com/crannog/crannog/internal/packages/store"
)

// PackageOptions configure the package cache. The zero value is valid.
type PackageOptions struct {
	// Budget is the disk space in bytes. 0 means the default.
	Budget int64
	// Keyrings are files with keys that may sign Debian archives, besides those of the host.
	Keyrings []string
	// Scanner is the address of ClamAV's daemon. Empty means clamd.DefaultAddress.
	Scanner string
}

// newExaminer returns the examiner of what the egress gateway fetches for the package cache.
func newExaminer(o Options, cache *packagestore.Store) (*examine.Examiner, error) {
	scanner, err := clamd.New(o.Packages.Scanner)
	if err != nil {
		return nil, fmt.Errorf("package_scanner: %w", err)
	}
	return examine.New(cache, scanner, time.Now), nil
}

// openPackages opens the package cache. Keys that the settings name must be usable.
func openPackages(o Options) (*packagestore.Store, error) {
	cache, err := packagestore.Open(o.StateDir, o.Packages.Budget)
	if err != nil {
		return nil, err
	}
	if len(o.Packages.Keyrings) > 0 {
		if err := keyring.Refresh(o.StateDir, o.Packages.Keyrings, o.Log); err != nil {
			return nil, fmt.Errorf("package cache: %w", err)
		}
	}
	return cache, nil
}

// refreshKeys brings the keys of Debian archives up to date, if the policy of a sandbox needs them.
// Reading them takes as long as starting a sandbox, and few sandboxes need them.
func (g *egressGateway) refreshKeys(p *policy.Policy) error {
	if !p.Caches(packages.Apt) {
		return nil
	}
	if err := keyring.Refresh(g.stateDir, g.keyrings, g.log); err != nil {
		return fmt.Errorf("keys of Debian archives: %w", err)
	}
	return nil
}

package sbom

import (
	"strings"

	"github.com/crannog/crannog/internal/packages/lockfile"
)

// parseNPMLock parses a lock file of npm. A program that was bundled into one file has no other
// trace of its packages. Those that only development needs are left out, because images are built
// without them; an installed one has its package.json.
func parseNPMLock(data []byte) (list []Package, err error) {
	err = lockfile.ReadNPM(data, func(p lockfile.NPMPackage) error {
		if !p.Dev && p.Version != "" && !strings.Contains(p.Version, ":") {
			list = append(list, Package{Kind: NPM, Name: p.Name, Version: p.Version})
		}
		return nil
	})
	return list, err
}

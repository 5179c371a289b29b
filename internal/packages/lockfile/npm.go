package lockfile

import (
	"encoding/json"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// npmLock is a package-lock.json or npm-shrinkwrap.json.
type npmLock struct {
	LockfileVersion int `json:"lockfileVersion"`
	// Packages has the packages of versions 2 and 3, by directory.
	Packages map[string]npmPackage `json:"packages"`
	// Dependencies has those of version 1, which version 2 repeats.
	Dependencies map[string]npmDependency `json:"dependencies"`
}

type npmPackage struct {
	Name      string `json:"name"`
	Version   string `json:"version"`
	Integrity string `json:"integrity"`
	Link      bool   `json:"link"`
	Dev       bool   `json:"dev"`
}

// npmDependency is a package with those that are installed in its directory.
type npmDependency struct {
	Version      string                   `json:"version"`
	Integrity    string                   `json:"integrity"`
	Dev          bool                     `json:"dev"`
	Dependencies map[string]npmDependency `json:"dependencies"`
}

// NPMPackage is a package of a lockfile of npm.
type NPMPackage struct {
	// Name is the package's own, also for an alias. Version is the address of a package from git, a
	// directory or an archive.
	Name, Version string
	// Integrity is its Subresource Integrity, or empty.
	Integrity string
	// Dev is set if only development needs it.
	Dev bool
}

// ReadNPM calls found for each package of a lockfile of the versions 1 to 3: a package-lock.json, an
// npm-shrinkwrap.json, or the file that npm keeps in node_modules.
func ReadNPM(text []byte, found func(NPMPackage) error) error {
	if err := checkDepth(string(text), false); err != nil {
		return err
	}
	var file npmLock
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	switch file.LockfileVersion {
	case 1:
		return npmNested(file.Dependencies, found)
	case 2, 3:
	default:
		return errVersion
	}
	for dir, p := range file.Packages {
		// Other directories are parts of the project itself, and links lead to them.
		at := strings.LastIndex(dir, "node_modules/")
		if at < 0 || p.Link {
			continue
		}
		// Only an alias has the name here: its directory has another one.
		if p.Name == "" {
			p.Name = dir[at+len("node_modules/"):]
		}
		if err := found(NPMPackage{p.Name, p.Version, p.Integrity, p.Dev}); err != nil {
			return err
		}
	}
	return nil
}

// npmNested calls found for the packages of a lockfile of version 1. checkDepth limits how deep they
// are nested.
func npmNested(of map[string]npmDependency, found func(NPMPackage) error) error {
	for name, p := range of {
		// The version of an alias is npm:NAME@VERSION.
		if alias, ok := strings.CutPrefix(p.Version, "npm:"); ok {
			at := max(strings.LastIndex(alias, "@"), 0)
			name, p.Version = alias[:at], strings.TrimPrefix(alias[at:], "@")
		}
		if err := found(NPMPackage{name, p.Version, p.Integrity, p.Dev}); err != nil {
			return err
		}
		if err := npmNested(p.Dependencies, found); err != nil {
			return err
		}
	}
	return nil
}

// parseNPM adds the packages of an npm lockfile. Bundled packages, and those from git and
// directories, have no digest of an archive of a registry.
func parseNPM(text []byte, c *collector) error {
	return ReadNPM(text, func(p NPMPackage) error {
		if strings.Contains(p.Version, ":") {
			p.Integrity = ""
		}
		return c.npm(p.Name, p.Version, p.Integrity)
	})
}

// npm adds a version with its Subresource Integrity.
func (c *collector) npm(name, version, integrity string) error {
	digest, _ := packages.ParseIntegrity(integrity)
	return c.add(packages.NPM, name, version, digest)
}

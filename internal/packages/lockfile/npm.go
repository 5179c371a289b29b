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
}

// npmDependency is a package with those that are installed in its directory.
type npmDependency struct {
	Version      string                   `json:"version"`
	Integrity    string                   `json:"integrity"`
	Dependencies map[string]npmDependency `json:"dependencies"`
}

// parseNPM reads versions 1 to 3. Bundled packages, and those from git and directories, have no
// digest of an archive.
func parseNPM(text []byte, c *collector) error {
	if err := checkDepth(string(text), false); err != nil {
		return err
	}
	var file npmLock
	if err := json.Unmarshal(text, &file); err != nil {
		return err
	}
	switch file.LockfileVersion {
	case 1:
		return c.npmNested(file.Dependencies)
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
		if err := c.npm(p.Name, p.Version, p.Integrity); err != nil {
			return err
		}
	}
	return nil
}

// npm adds a version with its Subresource Integrity.
func (c *collector) npm(name, version, integrity string) error {
	digest, _ := packages.ParseIntegrity(integrity)
	return c.add(packages.NPM, name, version, digest)
}

// npmNested adds the packages of a lockfile of version 1. checkDepth limits how deep they are
// nested.
func (c *collector) npmNested(of map[string]npmDependency) error {
	for name, p := range of {
		// The version of an alias is npm:NAME@VERSION, and that of a directory or an archive its
		// address.
		if alias, ok := strings.CutPrefix(p.Version, "npm:"); ok {
			at := max(strings.LastIndex(alias, "@"), 0)
			name, p.Version = alias[:at], strings.TrimPrefix(alias[at:], "@")
		}
		if strings.Contains(p.Version, ":") {
			c.without++
		} else if err := c.npm(name, p.Version, p.Integrity); err != nil {
			return err
		}
		if err := c.npmNested(p.Dependencies); err != nil {
			return err
		}
	}
	return nil
}

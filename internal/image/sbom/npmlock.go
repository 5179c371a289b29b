package sbom

import (
	"encoding/json"
	"errors"
	"strings"
)

// npmLock is a lock file of npm: package-lock.json, npm-shrinkwrap.json, or the file that npm keeps
// in node_modules.
type npmLock struct {
	LockfileVersion int
	// Packages has the packages of versions 2 and 3, by directory.
	Packages map[string]struct {
		Name, Version string
		Link, Dev     bool
	}
	// Dependencies has those of version 1, which version 2 repeats.
	Dependencies map[string]npmDependency
}

// npmDependency is a package with those that are installed in its directory.
type npmDependency struct {
	Version      string
	Dev          bool
	Dependencies map[string]npmDependency
}

// parseNPMLock parses a lock file. A program that was bundled into one file has no other trace of
// its packages. Those that only development needs are left out, because images are built without
// them; an installed one has its package.json.
func parseNPMLock(data []byte) (list []Package, err error) {
	var file npmLock
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.LockfileVersion < 1 || file.LockfileVersion > 3 {
		return nil, errors.New("the version of the lock file is not known")
	}
	if file.LockfileVersion == 1 {
		return npmNested(file.Dependencies, nil), nil
	}
	for dir, p := range file.Packages {
		// Other directories are parts of the project itself, and links lead to them.
		at := strings.LastIndex(dir, "node_modules/")
		if at < 0 || p.Link || p.Dev || p.Version == "" {
			continue
		}
		// Only an alias has the name here: its directory has another one.
		if p.Name == "" {
			p.Name = dir[at+len("node_modules/"):]
		}
		list = append(list, Package{Kind: NPM, Name: p.Name, Version: p.Version})
	}
	return list, nil
}

// npmNested appends the packages of a lock file of version 1. The parser of JSON bounds how deep
// they are nested.
func npmNested(of map[string]npmDependency, list []Package) []Package {
	for name, p := range of {
		if p.Dev {
			continue
		}
		// The version of an alias is npm:NAME@VERSION, and that of a directory or an archive its
		// address.
		if alias, ok := strings.CutPrefix(p.Version, "npm:"); ok {
			at := max(strings.LastIndex(alias, "@"), 0)
			name, p.Version = alias[:at], strings.TrimPrefix(alias[at:], "@")
		}
		if p.Version != "" && !strings.Contains(p.Version, ":") {
			list = append(list, Package{Kind: NPM, Name: name, Version: p.Version})
		}
		list = npmNested(p.Dependencies, list)
	}
	return list
}

package lockfile

import (
	"path"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// Index finds versions of a Set. A nil Index names nothing.
type Index struct {
	digests  map[key][]packages.Digest
	has      map[key]bool     // versions, with an empty one for each name
	versions map[key][]string // by ecosystem and name
	names    map[packages.Ecosystem][]string
	set      *Set
}

// Index returns an index of the set. A nil Set has an empty one.
func (s *Set) Index() *Index {
	if s == nil {
		return nil
	}
	x := &Index{digests: map[key][]packages.Digest{}, has: map[key]bool{}, versions: map[key][]string{}, names: map[packages.Ecosystem][]string{}, set: s}
	for _, e := range s.Entries {
		var digests []packages.Digest
		for _, text := range e.Digests {
			if d, ok := packages.ParseDigest(text); ok {
				digests = append(digests, d)
			}
		}
		x.digests[key{e.Ecosystem, e.Name, e.Version}] = digests
		name := key{e.Ecosystem, e.Name, ""}
		version := key{e.Ecosystem, e.Name, strings.TrimSuffix(e.Version, goModSuffix)}
		if !x.has[version] {
			x.versions[name] = append(x.versions[name], version.version)
		}
		if !x.has[name] {
			x.names[e.Ecosystem] = append(x.names[e.Ecosystem], e.Name)
		}
		x.has[name], x.has[version] = true, true
	}
	return x
}

// Names returns the packages of an ecosystem that the lockfiles name.
func (x *Index) Names(e packages.Ecosystem) []string {
	if x == nil {
		return nil
	}
	return x.names[e]
}

// Versions returns the versions of a package that the lockfiles name.
func (x *Index) Versions(a packages.Artifact) []string {
	if x == nil {
		return nil
	}
	return x.versions[key{a.Ecosystem, Name(a.Ecosystem, a.Name), ""}]
}

// Has reports whether the lockfiles name a version of a package, or with an empty version the
// package.
func (x *Index) Has(a packages.Artifact) bool {
	return x != nil && x.has[key{a.Ecosystem, Name(a.Ecosystem, a.Name), strings.TrimSuffix(Version(a.Ecosystem, a.Version), goModSuffix)}]
}

// Digests returns the digests of a file, whose version may end with /go.mod.
func (x *Index) Digests(a packages.Artifact) []packages.Digest {
	if x == nil {
		return nil
	}
	return x.digests[key{a.Ecosystem, Name(a.Ecosystem, a.Name), Version(a.Ecosystem, a.Version)}]
}

// Why returns a sentence on why the set has no more packages of an ecosystem, or "".
func (x *Index) Why(e packages.Ecosystem) string {
	switch {
	case x == nil:
		return "No lockfiles were read, because the sandbox was created without a workspace on the host, or before its policy had packages.lockfile_only."
	case x.set.NoWorkspace:
		return "The sandbox has no workspace on the host, so it has no lockfiles."
	}
	for _, s := range x.set.Skipped {
		// A directory that was skipped may have had lockfiles of each ecosystem.
		if of := ecosystemOf(path.Base(s.File)); of == e || of == "" {
			return "Not everything was read: " + s.String() + "."
		}
	}
	if x.set.Files == 0 {
		return "The workspace had no lockfile when the sandbox was created."
	}
	return ""
}

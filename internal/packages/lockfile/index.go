package lockfile

import (
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// Index finds versions of a Set. A nil Index names nothing.
type Index struct {
	versions map[key][]packages.Digest
	names    map[key][]string // versions by ecosystem and name
	set      *Set
}

// Index returns an index of the set. A nil Set has an empty one.
func (s *Set) Index() *Index {
	if s == nil {
		return nil
	}
	x := &Index{versions: map[key][]packages.Digest{}, names: map[key][]string{}, set: s}
	for _, e := range s.Entries {
		var digests []packages.Digest
		for _, text := range e.Digests {
			if d, ok := packages.ParseDigest(text); ok {
				digests = append(digests, d)
			}
		}
		x.versions[key{e.Ecosystem, e.Name, e.Version}] = digests
		version := strings.TrimSuffix(e.Version, goModSuffix)
		at := key{e.Ecosystem, e.Name, ""}
		if !slices.Contains(x.names[at], version) {
			x.names[at] = append(x.names[at], version)
		}
	}
	return x
}

// Versions returns the versions of a package that the lockfiles name.
func (x *Index) Versions(a packages.Artifact) []string {
	if x == nil {
		return nil
	}
	return x.names[key{a.Ecosystem, Name(a.Ecosystem, a.Name), ""}]
}

// Has reports whether the lockfiles name a version of a package, or with an empty version the
// package.
func (x *Index) Has(a packages.Artifact) bool {
	versions := x.Versions(a)
	if a.Version == "" {
		return len(versions) > 0
	}
	return slices.Contains(versions, strings.TrimSuffix(Version(a.Ecosystem, a.Version), goModSuffix))
}

// Digests returns the digests of a file, whose version may end with /go.mod.
func (x *Index) Digests(a packages.Artifact) []packages.Digest {
	if x == nil {
		return nil
	}
	return x.versions[key{a.Ecosystem, Name(a.Ecosystem, a.Name), Version(a.Ecosystem, a.Version)}]
}

// Why returns a sentence on why the set has no more packages, or "".
func (x *Index) Why() string {
	switch {
	case x == nil:
		return "No lockfiles were read, because the sandbox was created without a workspace on the host, or before its policy had packages.lockfile_only."
	case x.set.NoWorkspace:
		return "The sandbox has no workspace on the host, so it has no lockfiles."
	case len(x.set.Skipped) > 0:
		return "Not read: " + x.set.Skipped[0].String() + "."
	case x.set.Files == 0:
		return "The workspace had no lockfile when the sandbox was created."
	}
	return ""
}

// Package packages owns the vocabulary of the package cache: ecosystems, the registries that serve
// them, and what a registry says about the versions of a package. The packages below it read the
// protocols of registries, and store and serve what was fetched.
package packages

import (
	"slices"
	"strings"
	"time"
)

// Ecosystem is a family of registries with one protocol.
type Ecosystem string

// The ecosystems that the cache knows.
const (
	NPM    Ecosystem = "npm"
	Go     Ecosystem = "go"
	Apt    Ecosystem = "apt"
	PyPI   Ecosystem = "pypi"
	Crates Ecosystem = "crates"
	Maven  Ecosystem = "maven"
	OCI    Ecosystem = "oci"
)

// Ecosystems lists the names of all ecosystems.
func Ecosystems() []string {
	return []string{string(NPM), string(Go), string(Apt), string(PyPI), string(Crates), string(Maven), string(OCI)}
}

// wellKnown are the public registries.
var wellKnown = map[string]Ecosystem{
	"registry.npmjs.org":     NPM,
	"registry.yarnpkg.com":   NPM,
	"proxy.golang.org":       Go,
	"deb.debian.org":         Apt,
	"security.debian.org":    Apt,
	"archive.ubuntu.com":     Apt,
	"security.ubuntu.com":    Apt,
	"pypi.org":               PyPI,
	"files.pythonhosted.org": PyPI,
	"index.crates.io":        Crates,
	"static.crates.io":       Crates,
	"repo1.maven.org":        Maven,
	"repo.maven.apache.org":  Maven,

	"registry-1.docker.io":    OCI,
	"index.docker.io":         OCI,
	"docker.io":               OCI,
	"registry.hub.docker.com": OCI,
	"ghcr.io":                 OCI,
	"quay.io":                 OCI,
	"gcr.io":                  OCI,
	"us.gcr.io":               OCI,
	"eu.gcr.io":               OCI,
	"asia.gcr.io":             OCI,
	"registry.k8s.io":         OCI,
	"public.ecr.aws":          OCI,
	"mcr.microsoft.com":       OCI,
}

// WellKnown returns the ecosystem of a public registry's host.
func WellKnown(host string) (Ecosystem, bool) {
	e, ok := wellKnown[host]
	return e, ok
}

// Known reports whether the cache knows an ecosystem.
func Known(e Ecosystem) bool { return slices.Contains(Ecosystems(), string(e)) }

// Artifact names a package, or with Version one version of it.
type Artifact struct {
	Ecosystem     Ecosystem
	Name, Version string
}

// String returns the name of the artifact in messages and policies.
func (a Artifact) String() string {
	s := string(a.Ecosystem) + ":" + a.Name
	if a.Version != "" {
		s += "@" + a.Version
	}
	return s
}

// ParsePattern reads an entry of a list in a policy: ECOSYSTEM:NAME or ECOSYSTEM:NAME@VERSION. NAME
// and VERSION may be globs.
func ParsePattern(s string) (e Ecosystem, name, version string, ok bool) {
	before, name, ok := strings.Cut(s, ":")
	if !ok || !Known(Ecosystem(before)) {
		return "", "", "", false
	}
	// The first byte of a scoped npm name is an @ too.
	if i := strings.LastIndexByte(name, '@'); i > 0 {
		name, version = name[:i], name[i+1:]
		if version == "" {
			return "", "", "", false
		}
	}
	return Ecosystem(before), name, version, name != ""
}

// Index is what a registry says about a package.
type Index struct {
	Name     string
	Versions map[string]Version
	// Files maps the path of a file on the registry to its version.
	Files map[string]string
}

// Weight is what the index takes in memory, in versions.
func (x *Index) Weight() int { return len(x.Versions) + 1 }

// Version is one version of a package, as its registry describes it.
type Version struct {
	// Digest is the registry's own digest of the file.
	Digest Digest
	// Published is when the registry received the version. Zero means that the registry does not
	// say.
	Published time.Time
	// NotAfter is a time at which the version certainly existed, if the registry does not say when
	// it was published.
	NotAfter time.Time
	// Scripts are the names of scripts that the version runs when it is installed.
	Scripts []string
	// Origin is set if advisories know the version under another name.
	Origin *Origin
}

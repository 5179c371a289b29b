// Package publish owns recognising requests that publish a package, an image or a release for
// others to install. It recognises registries by their protocols, not by the client program, so
// that a script with curl is recognised like npm. The policy decides whether a publication is
// allowed.
package publish

import (
	"net/http"
	"net/url"
	"strings"
)

// Kind is the protocol of a registry.
type Kind string

// The known registries.
const (
	NPM      Kind = "npm"
	PyPI     Kind = "pypi"
	Crates   Kind = "crates"
	OCI      Kind = "oci"
	Release  Kind = "release" // of a forge: GitHub, Gitea, GitLab
	RubyGems Kind = "rubygems"
	NuGet    Kind = "nuget"
	Maven    Kind = "maven"
	Hex      Kind = "hex"
)

// Publication is what a request would publish, change or withdraw. All of these affect the people
// who install the package: a changed tag, for example, gives them other code.
type Publication struct {
	Kind     Kind
	Registry string // the host
	// Package and Version are those in the path, or "" if only the body has them. An approval
	// always includes the body's hash.
	Package, Version string
	// Withdraws is set for a deletion: unpublish or yank.
	Withdraws bool
}

// Summary returns one line for display.
func (p Publication) Summary() string {
	verb := "publish"
	if p.Withdraws {
		verb = "withdraw"
	}
	what := p.Package
	if p.Version != "" {
		what += " " + p.Version
	}
	if what != "" {
		what = " " + what
	}
	return verb + " " + string(p.Kind) + what + " at " + p.Registry
}

// Facts returns what an approval is bound to, besides the body.
func (p Publication) Facts() map[string]string {
	action := "publish"
	if p.Withdraws {
		action = "withdraw"
	}
	return map[string]string{
		"action": action, "kind": string(p.Kind), "registry": p.Registry, "package": p.Package, "version": p.Version,
	}
}

// request is what the detectors inspect.
type request struct {
	host, method string
	segments     []string // of the decoded path, without empty ones
	header       http.Header
}

// Detect reports whether a request publishes. The host is canonical, and the path has passed
// names.Path, with or without encoded slashes. The path is interpreted as a server would decode it,
// ignoring case. If a request is wrongly recognised as a publication, that costs one approval
// request; if a publication is missed, it may harm everyone who installs the package.
func Detect(method, host, escapedPath string, header http.Header) (Publication, bool) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return Publication{}, false
	}
	path, err := url.PathUnescape(escapedPath)
	if err != nil {
		path = escapedPath
	}
	r := request{host: host, method: method, header: header}
	for s := range strings.SplitSeq(path, "/") {
		if s != "" {
			r.segments = append(r.segments, s)
		}
	}
	for _, d := range []func(request) (Publication, bool){oci, crates, release, pypi, rubyGems, nuGet, maven, hex, npm} {
		if p, ok := d(r); ok {
			p.Registry = host
			p.Withdraws = p.Withdraws || method == http.MethodDelete
			return p, true
		}
	}
	return Publication{}, false
}

// at reports whether the path has these segments starting at position i. "*" matches any segment.
func (r request) at(i int, want ...string) bool {
	if i < 0 || i+len(want) > len(r.segments) {
		return false
	}
	for k, w := range want {
		if w != "*" && !strings.EqualFold(r.segments[i+k], w) {
			return false
		}
	}
	return true
}

// find returns the first position with these segments, or -1.
func (r request) find(want ...string) int {
	for i := range r.segments {
		if r.at(i, want...) {
			return i
		}
	}
	return -1
}

// segment returns the segment at a position, or "".
func (r request) segment(i int) string {
	if i < 0 || i >= len(r.segments) {
		return ""
	}
	return r.segments[i]
}

func (r request) changes() bool {
	return r.method == http.MethodPut || r.method == http.MethodDelete || r.method == http.MethodPatch
}

func (r request) below(domains ...string) bool {
	for _, d := range domains {
		if r.host == d || strings.HasSuffix(r.host, "."+d) {
			return true
		}
	}
	return false
}

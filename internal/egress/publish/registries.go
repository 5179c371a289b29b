package publish

import (
	"net/http"
	"strings"
)

// npm recognises PUT /{package}, with tags and access below /-/package. The path alone is not
// enough. So the host must be a registry's, the path must have one of the npm segments of
// multi-format registries, or the client must name its command in a header.
func npm(r request) (Publication, bool) {
	if !r.changes() {
		return Publication{}, false
	}
	start := 0
	switch below := r.find("npm"); {
	case r.below("registry.npmjs.org", "registry.npmjs.com", "registry.yarnpkg.com", "npm.pkg.github.com", "npm.jsr.io"):
	case below >= 0:
		start = below + 1
		if r.host != "" && strings.HasSuffix(r.host, ".amazonaws.com") || r.at(below-1, "api") {
			start++ // CodeArtifact and Artifactory name the repository next
		}
	case r.namesCommand("publish", "unpublish", "dist-tag", "deprecate", "access", "owner"):
	default:
		return Publication{}, false
	}
	if i := r.find("-", "package"); i >= 0 {
		start = i + 2
	}
	p := Publication{Kind: NPM, Package: r.segment(start)}
	if strings.HasPrefix(p.Package, "@") && !strings.Contains(p.Package, "/") && r.segment(start+1) != "" {
		p.Package += "/" + r.segment(start+1)
	}
	return p, true
}

// namesCommand reports whether the request has a header in which npm and similar programs name one
// of the commands.
func (r request) namesCommand(commands ...string) bool {
	for _, c := range commands {
		if strings.EqualFold(r.header.Get("Npm-Command"), c) {
			return true
		}
	}
	return false
}

// pypi recognises a form that is sent to /legacy/, or to a segment "pypi" of a private registry.
// The package's name is in the form.
func pypi(r request) (Publication, bool) {
	last := r.segment(len(r.segments) - 1)
	if r.below("upload.pypi.org", "upload.pypi.io") || r.method == http.MethodPost && (strings.EqualFold(last, "legacy") || r.find("pypi") >= 0) ||
		r.changes() && r.find("pypi") >= 0 {
		return Publication{Kind: PyPI}, true
	}
	return Publication{}, false
}

// crates recognises PUT /api/v1/crates/new. yank, unyank and owners are below
// /api/v1/crates/{crate}. A registry may have any prefix.
func crates(r request) (Publication, bool) {
	i := r.find("api", "v1", "crates")
	if i < 0 || !r.changes() {
		return Publication{}, false
	}
	p := Publication{Kind: Crates}
	if !r.at(i+3, "new") {
		p.Package = r.segment(i + 3)
		p.Withdraws = r.at(i+5, "yank")
		if p.Withdraws || r.at(i+5, "unyank") {
			p.Version = r.segment(i + 4)
		}
	}
	return p, true
}

// oci recognises PUT /v2/{name}/manifests/{reference} of the distribution specification. Blobs have
// no effect until a manifest refers to them.
func oci(r request) (Publication, bool) {
	i := r.find("v2")
	if i < 0 || !r.changes() {
		return Publication{}, false
	}
	// A repository may itself have a segment "manifests", so the last one counts.
	for k := len(r.segments) - 2; k > i+1; k-- {
		if r.at(k, "manifests") {
			return Publication{Kind: OCI, Package: strings.Join(r.segments[i+1:k], "/"), Version: strings.Join(r.segments[k+1:], "/")}, true
		}
	}
	return Publication{}, false
}

// release recognises a forge's release: below /repos/{owner}/{repository} at GitHub and Gitea,
// below /projects/{id} at GitLab. GitHub receives the files of a release at another host under the
// same path.
func release(r request) (Publication, bool) {
	i, name := r.find("repos", "*", "*", "releases"), ""
	if i >= 0 {
		name = r.segments[i+1] + "/" + r.segments[i+2]
		i += 4
	} else if p := r.find("projects"); p >= 0 {
		// GitLab's project is a number or a path whose slashes are escaped.
		for k := p + 2; k < len(r.segments); k++ {
			if r.at(k, "releases") {
				name, i = strings.Join(r.segments[p+1:k], "/"), k+1
				break
			}
		}
	}
	if i < 0 || r.at(i, "generate-notes") && len(r.segments) == i+1 {
		return Publication{}, false
	}
	return Publication{Kind: Release, Package: name, Version: r.segment(i)}, true
}

// rubyGems recognises POST /api/v1/gems, with yank and owners below it.
func rubyGems(r request) (Publication, bool) {
	if i := r.find("api", "v1", "gems"); i >= 0 {
		return Publication{Kind: RubyGems, Withdraws: r.at(i+3, "yank")}, true
	}
	return Publication{}, false
}

// nuGet recognises PUT and DELETE below /api/v2/package.
func nuGet(r request) (Publication, bool) {
	i := r.find("api", "v2", "package")
	if i < 0 {
		return Publication{}, false
	}
	return Publication{Kind: NuGet, Package: r.segment(i + 3), Version: r.segment(i + 4)}, true
}

// maven recognises Maven Central's upload, and the hosts that it replaced.
func maven(r request) (Publication, bool) {
	if r.find("api", "v1", "publisher") >= 0 || r.below("oss.sonatype.org") {
		return Publication{Kind: Maven}, true
	}
	return Publication{}, false
}

// hex recognises POST /api/publish or /api/packages/{package}/releases, with or without an
// organisation's repository.
func hex(r request) (Publication, bool) {
	if !r.below("hex.pm") {
		return Publication{}, false
	}
	if i := r.find("packages", "*", "releases"); i >= 0 {
		return Publication{Kind: Hex, Package: r.segments[i+1], Version: r.segment(i + 3)}, true
	}
	return Publication{Kind: Hex}, r.find("publish") >= 0
}

package publish_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/publish"
)

func TestDetectPublications(t *testing.T) {
	for _, c := range []struct {
		method, host, path string
		want               publish.Publication
	}{
		{"PUT", "registry.npmjs.org", "/left-pad", publish.Publication{Kind: publish.NPM, Package: "left-pad"}},
		{"PUT", "registry.npmjs.org", "/@acme%2fpay", publish.Publication{Kind: publish.NPM, Package: "@acme/pay"}},
		{"PUT", "registry.npmjs.org", "/@acme/pay", publish.Publication{Kind: publish.NPM, Package: "@acme/pay"}},
		{"PUT", "registry.npmjs.org", "/%6Ceft-pad", publish.Publication{Kind: publish.NPM, Package: "left-pad"}},
		{"PUT", "registry.npmjs.org", "/-/package/@acme%2fpay/dist-tags/latest", publish.Publication{Kind: publish.NPM, Package: "@acme/pay"}},
		{"DELETE", "registry.npmjs.org", "/left-pad/-rev/1-a", publish.Publication{Kind: publish.NPM, Package: "left-pad", Withdraws: true}},
		{"PUT", "git.acme.test", "/api/packages/acme/npm/@acme%2fpay", publish.Publication{Kind: publish.NPM, Package: "@acme/pay"}},
		{"PUT", "art.acme.test", "/artifactory/api/npm/local/pay", publish.Publication{Kind: publish.NPM, Package: "pay"}},
		{"PUT", "acme-1.d.codeartifact.eu-west-1.amazonaws.com", "/npm/repo/pay", publish.Publication{Kind: publish.NPM, Package: "pay"}},
		{"POST", "upload.pypi.org", "/legacy/", publish.Publication{Kind: publish.PyPI}},
		{"POST", "test.pypi.org", "/legacy/", publish.Publication{Kind: publish.PyPI}},
		{"POST", "test.pypi.org", "/Legac%79", publish.Publication{Kind: publish.PyPI}},
		{"POST", "git.acme.test", "/api/packages/acme/pypi", publish.Publication{Kind: publish.PyPI}},
		{"PUT", "crates.io", "/api/v1/crates/new", publish.Publication{Kind: publish.Crates}},
		{"PUT", "crates.acme.test", "/prefix/api/v1/crates/new", publish.Publication{Kind: publish.Crates}},
		{"DELETE", "crates.io", "/api/v1/crates/pay/1.0.0/yank", publish.Publication{Kind: publish.Crates, Package: "pay", Version: "1.0.0", Withdraws: true}},
		{"PUT", "crates.io", "/api/v1/crates/pay/1.0.0/unyank", publish.Publication{Kind: publish.Crates, Package: "pay", Version: "1.0.0"}},
		{"PUT", "ghcr.io", "/v2/acme/pay/manifests/latest", publish.Publication{Kind: publish.OCI, Package: "acme/pay", Version: "latest"}},
		{"PUT", "ghcr.io", "/v2/acme/manifests/x/manifests/sha256:ab", publish.Publication{Kind: publish.OCI, Package: "acme/manifests/x", Version: "sha256:ab"}},
		{"DELETE", "ghcr.io", "/v2/acme/pay/manifests/latest", publish.Publication{Kind: publish.OCI, Package: "acme/pay", Version: "latest", Withdraws: true}},
		{"POST", "api.github.com", "/repos/acme/pay/releases", publish.Publication{Kind: publish.Release, Package: "acme/pay"}},
		{"PATCH", "api.github.com", "/repos/acme/pay/releases/7", publish.Publication{Kind: publish.Release, Package: "acme/pay", Version: "7"}},
		{"POST", "uploads.github.com", "/repos/acme/pay/releases/7/assets", publish.Publication{Kind: publish.Release, Package: "acme/pay", Version: "7"}},
		{"POST", "ghe.acme.test", "/api/v3/repos/acme/pay/releases", publish.Publication{Kind: publish.Release, Package: "acme/pay"}},
		{"POST", "gitlab.com", "/api/v4/projects/acme%2Fpay/releases", publish.Publication{Kind: publish.Release, Package: "acme/pay"}},
		{"POST", "rubygems.org", "/api/v1/gems", publish.Publication{Kind: publish.RubyGems}},
		{"PUT", "www.nuget.org", "/api/v2/package/", publish.Publication{Kind: publish.NuGet}},
		{"POST", "central.sonatype.com", "/api/v1/publisher/upload", publish.Publication{Kind: publish.Maven}},
		{"POST", "hex.pm", "/api/packages/pay/releases", publish.Publication{Kind: publish.Hex, Package: "pay"}},
		{"POST", "hex.pm", "/api/publish", publish.Publication{Kind: publish.Hex}},
	} {
		got, ok := publish.Detect(c.method, c.host, c.path, http.Header{})
		c.want.Registry = c.host
		if !ok || got != c.want {
			t.Errorf("Detect(%s %s%s) = %+v, %v, want %+v", c.method, c.host, c.path, got, ok, c.want)
		}
	}
}

func TestDetectIgnoresOtherRequests(t *testing.T) {
	for _, c := range []struct{ method, host, path string }{
		{"GET", "registry.npmjs.org", "/left-pad"},
		{"HEAD", "ghcr.io", "/v2/acme/pay/manifests/latest"},
		{"GET", "crates.io", "/api/v1/crates/new"},
		{"POST", "registry.npmjs.org", "/-/npm/v1/security/advisories/bulk"},
		{"POST", "ghcr.io", "/v2/acme/pay/blobs/uploads/"},
		{"PUT", "ghcr.io", "/v2/acme/pay/blobs/uploads/7"},
		{"PUT", "api.acme.test", "/things/7"},
		{"POST", "api.github.com", "/repos/acme/pay/issues"},
		{"POST", "api.github.com", "/repos/acme/pay/releases/generate-notes"},
		{"POST", "pypi.org", "/search"},
	} {
		if got, ok := publish.Detect(c.method, c.host, c.path, nil); ok {
			t.Errorf("Detect(%s %s%s) = %+v, want none", c.method, c.host, c.path, got)
		}
	}
}

func TestDetectNPMCommandHeader(t *testing.T) {
	h := http.Header{"Npm-Command": {"publish"}}
	if got, ok := publish.Detect("PUT", "nexus.acme.test", "/repository/x", h); !ok || got.Kind != publish.NPM {
		t.Errorf("Detect with the header Npm-Command = %+v, %v, want npm", got, ok)
	}
}

func TestPublicationSummaryAndFacts(t *testing.T) {
	p := publish.Publication{Kind: publish.OCI, Registry: "ghcr.io", Package: "acme/pay", Version: "latest"}
	if got := p.Summary(); got != "publish oci acme/pay latest at ghcr.io" {
		t.Errorf("Summary = %q, want the package, its version and registry", got)
	}
	want := map[string]string{"action": "publish", "kind": "oci", "registry": "ghcr.io", "package": "acme/pay", "version": "latest"}
	if got := p.Facts(); !maps.Equal(got, want) {
		t.Errorf("Facts = %v, want %v", got, want)
	}
	p = publish.Publication{Kind: publish.PyPI, Registry: "upload.pypi.org", Withdraws: true}
	if got := p.Summary(); got != "withdraw pypi at upload.pypi.org" || p.Facts()["action"] != "withdraw" {
		t.Errorf("Summary of a withdrawal = %q", got)
	}
}

// A publication is detected in every spelling of a path that servers treat as the same one.
func FuzzDetect(f *testing.F) {
	f.Add("PUT", "crates.io", "/api/v1/crates/new")
	f.Add("PUT", "ghcr.io", "/v2/a/b/manifests/c")
	f.Add("POST", "a.test", "/a//legacy/")
	f.Fuzz(func(t *testing.T, method, host, path string) {
		if strings.Contains(path, "%") {
			return
		}
		got, ok := publish.Detect(method, host, path, nil)
		if !ok {
			return
		}
		if got.Kind == "" || got.Registry != host || got.Summary() == "" {
			t.Fatalf("Detect returned %+v, want a kind, the host and a summary", got)
		}
		for _, other := range []string{path + "/", strings.ReplaceAll(path, "/", "//"), strings.ReplaceAll(path, "a", "%61")} {
			if _, ok := publish.Detect(method, host, other, nil); !ok {
				t.Fatalf("Detect(%s %s%s) is a publication, but with the path %s it is not", method, host, path, other)
			}
		}
	})
}

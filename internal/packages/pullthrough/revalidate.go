package pullthrough

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// digestHeader is the header in which registries of images state the digest of their answer.
const digestHeader = "Docker-Content-Digest"

// unchanged reports whether a registry states that an old document is still the current one.
// Registries limit how often a document may be fetched, but not this question. Any error means that
// the document is fetched.
func (c *Cache) unchanged(ctx context.Context, r Request, e store.Entry, q packages.Query) bool {
	if !q.Revalidate || e.SHA256 == "" {
		return false
	}
	resp, err := c.send(ctx, r, e, Fetch{Method: http.MethodHead, URL: e.Key, Accept: q.Accept})
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK && resp.Header.Get(digestHeader) == "sha256:"+e.SHA256
}

// stated returns an error if a registry states another digest than that of the text which it sent.
func stated(resp *http.Response, sum string, f packages.Fact) error {
	digest := resp.Header.Get(digestHeader)
	if f.Ecosystem != packages.OCI || digest == "" || digest == "sha256:"+sum {
		return nil
	}
	return refuse(http.StatusBadGateway, "package_integrity", packages.RuleIntegrity,
		"the registry's answer is not what its header "+digestHeader+" says: its digest is sha256:"+sum, f, nil)
}

package pullthrough

import (
	"mime"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/packages"
)

// acceptable returns a refusal if a client does not accept the type of a manifest. A registry might
// convert the manifest for this client; the cache has only one form, which is the one of its
// digest.
func (s *session) acceptable(kind string) error {
	given := false
	for _, line := range s.request.Accept {
		for part := range strings.SplitSeq(line, ",") {
			got, parameters, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			given = true
			before, _, _ := strings.Cut(kind, "/")
			if parameters["q"] != "0" && (got == kind || got == "*/*" || got == before+"/*") {
				return nil
			}
		}
	}
	if !given {
		return nil
	}
	return refuse(http.StatusNotAcceptable, "package_type", packages.RuleRequest,
		"the registry has this as "+kind+", which the client does not accept, and the cache converts nothing", s.fact, nil)
}

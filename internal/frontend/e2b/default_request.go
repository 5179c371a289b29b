package e2b

import "github.com/crannog/crannog/internal/sandbox"

// DefaultRequest is the request of a client that names only a template.
func DefaultRequest(template string) (sandbox.CreateRequest, error) {
	return newSandbox{TemplateID: template}.request(createV2)
}

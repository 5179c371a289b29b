package e2b

import "github.com/crannog/crannog/internal/sandbox"

// Usual is the request of a client that names only a template.
func Usual(template string) (sandbox.CreateRequest, error) {
	return newSandbox{TemplateID: template}.request(createV2)
}

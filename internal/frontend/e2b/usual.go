package e2b

import "github.com/crannog/crannog/internal/sandbox"

// Usual is what a client asks for that names a template and nothing else.
func Usual(template string) (sandbox.CreateRequest, error) {
	return newSandbox{TemplateID: template}.request(createV2)
}

package v1

import (
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// DefaultRequest is the request of a client that uses only default options.
func DefaultRequest() (sandbox.CreateRequest, error) { return fromCreate(api.CreateSandbox{}) }

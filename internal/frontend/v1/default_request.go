package v1

import (
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// Usual is the request of a client that uses only default options.
func Usual() (sandbox.CreateRequest, error) { return fromCreate(api.CreateSandbox{}) }

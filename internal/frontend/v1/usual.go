package v1

import (
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// Usual is what a client asks for that names nothing.
func Usual() (sandbox.CreateRequest, error) { return fromCreate(api.CreateSandbox{}) }

package v1

import (
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// versionHandlers serves the server's version.
type versionHandlers struct{ version, domain string }

func (h *versionHandlers) register(r *registry) {
	register(r, op("version", "GET", "/version", "Get the server's version"), h.showVersion)
}

type versionOutput struct{ Body api.Version }

func (h *versionHandlers) showVersion(context.Context, sandbox.Principal, *struct{}) (*versionOutput, error) {
	return &versionOutput{api.Version{Version: h.version, API: "v1", Domain: h.domain}}, nil
}

package e2b

import (
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// routes lists every call. Two generations of SDKs are in use. They differ in the paths of create,
// list and connect and in their default timeouts.
func (a *api) routes() {
	a.handle("POST /sandboxes", a.create(createV1))
	a.handle("POST /v2/sandboxes", a.create(createV2))
	a.handle("GET /sandboxes", a.listV1)
	a.handle("GET /v2/sandboxes", a.listV2)

	a.handle("GET /sandboxes/{id}", a.info)
	a.handle("DELETE /sandboxes/{id}", a.remove)
	a.handle("POST /sandboxes/{id}/timeout", a.setTimeout)
	a.handle("POST /sandboxes/{id}/refreshes", a.refresh)
	a.handle("POST /sandboxes/{id}/connect", a.connectV1)
	a.handle("POST /v2/sandboxes/{id}/connect", a.connectV2)

	a.handle("PUT /sandboxes/{id}/network", a.setNetwork)

	a.handle("GET /sandboxes/metrics", a.metricsOfMany)
	a.handle("GET /sandboxes/{id}/metrics", a.metrics)
	a.handle("GET /sandboxes/{id}/logs", a.logsV1)
	a.handle("GET /v2/sandboxes/{id}/logs", a.logsV2)

	a.handle("POST /sandboxes/{id}/pause", a.pause)
	a.handle("POST /sandboxes/{id}/resume", a.resume)
	a.handle("POST /sandboxes/{id}/fork", a.fork)
	a.snapshotRoutes()
	a.secretRoutes()
	a.templateRoutes()
	a.volumeRoutes()
	a.handle("/", a.unknownRoute)
}

// unsupportedRoutes are the unsupported parts of the E2B API, by the first segment of the path
// without its version.
var unsupportedRoutes = map[string]string{
	"templates":     "building and listing templates",
	"volumes":       "volumes",
	"volumecontent": "volumes",
	"secrets":       "secrets",
	"teams":         "teams",
	"api-keys":      "managing keys over HTTP",
	"access-tokens": "access tokens",
	"nodes":         "node administration",
	"admin":         "node administration",
}

func (a *api) unknownRoute(_ http.ResponseWriter, r *http.Request, _ sandbox.Principal) error {
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(segments) > 1 && isAPIVersion(segments[0]) {
		segments = segments[1:]
	}
	if what, ok := unsupportedRoutes[segments[0]]; ok && (segments[0] != "templates" || a.Builds == nil) && (segments[0] != "volumes" || a.Volumes == nil) {
		return notSupported(what)
	}
	return fault.New(fault.NotFound, "route_not_found", "no such endpoint")
}

func isAPIVersion(s string) bool {
	return len(s) == 2 && s[0] == 'v' && s[1] >= '1' && s[1] <= '9'
}

func notSupported(what string) *fault.Error {
	return fault.Newf(fault.Unsupported, codeNotSupported, "%s is not supported by this server yet", what)
}

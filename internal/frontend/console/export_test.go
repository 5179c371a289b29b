package console

import "github.com/crannog/crannog/internal/frontend/console/session"

// APIScopes returns the scope that each /v1 route needs in the console.
func APIScopes() map[string]session.Scope {
	out := map[string]session.Scope{}
	for _, r := range apiRules {
		out[r.route] = r.scope
	}
	out["GET "+changesRoute] = session.Viewer
	return out
}

// Accepts exports accepts to tests.
func Accepts(header, name string) bool { return accepts(header, name) }

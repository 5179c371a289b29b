package console

import "github.com/crannog/crannog/internal/frontend/console/session"

// APIScopes are the scopes of the own API's routes.
func APIScopes() map[string]session.Scope {
	out := map[string]session.Scope{}
	for _, r := range apiRules {
		out[r.route] = r.scope
	}
	out["GET "+changesRoute] = session.Viewer
	return out
}

// Accepts is accepts.
func Accepts(header, name string) bool { return accepts(header, name) }

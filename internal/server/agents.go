package server

import (
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/state/key"
)

// AgentKey returns the ID of the key that a request to tools of agents shows,
// one for the API or one for such tools alone. There must be one also on this
// machine: what its user may do is more than any agent should.
func (d *Server) AgentKey(r *http.Request) (string, error) {
	k, err := d.Keys.VerifyAt(r.Context(), shownKey(r), key.MCP)
	return k.ID, err
}

// shownKey is the key that a request shows, "" if it shows none.
func shownKey(r *http.Request) string {
	if secret := r.Header.Get("X-API-Key"); secret != "" {
		return secret
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

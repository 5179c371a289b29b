package server

import (
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/state/key"
)

// AgentKey returns the ID of the key in a request to the MCP tools for agents. The key is an API
// key or a key for tools only. It is required on this machine too, because an agent should not have
// all rights of its user.
func (d *Server) AgentKey(r *http.Request) (string, error) {
	k, err := d.Keys.VerifyAt(r.Context(), requestKey(r), key.MCP)
	return k.ID, err
}

// requestKey returns the key in a request, or "".
func requestKey(r *http.Request) string {
	if secret := r.Header.Get("X-API-Key"); secret != "" {
		return secret
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

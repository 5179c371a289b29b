// Package session owns the sign-in of the web console: one-time tokens, sessions, and scopes.
// Package console maps scopes to routes.
package session

import (
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Scope is the set of permissions of a session. The zero Scope has none.
type Scope int

// The scopes. Each includes those before it.
const (
	Viewer   Scope = iota + 1 // reads
	Operator                  // works with sandboxes
	Admin                     // also keys, secrets, sessions and the audit log
)

var scopeNames = [...]string{"", "viewer", "operator", "admin"}

// String returns the scope's name in the API.
func (s Scope) String() string {
	if s < Viewer || s > Admin {
		return ""
	}
	return scopeNames[s]
}

// Has reports whether a session with this scope has the permissions of another.
func (s Scope) Has(need Scope) bool { return need >= Viewer && s >= need && s <= Admin }

// ParseScope parses a scope's name.
func ParseScope(text string) (Scope, error) {
	for s := Viewer; s <= Admin; s++ {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fault.New(fault.Invalid, "scope_invalid", "the scope must be viewer, operator or admin")
}

// Session is one signed-in browser.
type Session struct {
	ID        string // ID in the audit log; not a credential
	Name      string
	Scope     Scope
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Principal returns the session as a caller of the sandbox service.
func (s Session) Principal() sandbox.Principal {
	if s.ID == "" {
		return sandbox.Principal{} // neither a key nor the local user
	}
	return sandbox.Principal{Local: true, Session: s.ID, Person: s.Name}
}

// Handler answers requests of a signed-in session. The scope has been checked, and also that no
// other site has sent the request.
type Handler interface {
	ServeSession(w http.ResponseWriter, r *http.Request, caller Session)
}

// Package session owns who is signed in to the web console: one-time tokens,
// the sessions that they become, and what a session's scope is. What a scope
// may do is the console's table.
package session

import (
	"net/http"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Scope is how much a session may do. The zero Scope may do nothing.
type Scope int

// The scopes; each may do all that those before it may.
const (
	Viewer   Scope = iota + 1 // reads
	Operator                  // works with sandboxes
	Admin                     // also keys, secrets, sessions and the record
)

var scopeNames = [...]string{"", "viewer", "operator", "admin"}

// String is the scope's name on the wire.
func (s Scope) String() string {
	if s < Viewer || s > Admin {
		return ""
	}
	return scopeNames[s]
}

// Has reports whether a session of this scope may do what needs another.
func (s Scope) Has(need Scope) bool { return need >= Viewer && s >= need && s <= Admin }

// ParseScope reads a scope's name.
func ParseScope(text string) (Scope, error) {
	for s := Viewer; s <= Admin; s++ {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fault.New(fault.Invalid, "scope_invalid", "a scope is viewer, operator or admin")
}

// Session is one signed-in browser.
type Session struct {
	ID        string // names it in the record; opens nothing
	Name      string
	Scope     Scope
	CreatedAt time.Time
	ExpiresAt time.Time
}

// Principal is the session as the sandbox package's rules know it.
func (s Session) Principal() sandbox.Principal {
	if s.ID == "" {
		return sandbox.Principal{} // no identity, and not the local user
	}
	return sandbox.Principal{Local: true, Session: s.ID, Person: s.Name}
}

// Handler answers requests of a session that is signed in, whose scope is
// enough for the route, and which no other site has sent.
type Handler interface {
	ServeSession(w http.ResponseWriter, r *http.Request, who Session)
}

package console

import (
	"net/http"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// LinkOf returns the URL of a token. The token is in the fragment, which browsers do not send to
// any server.
func LinkOf(base, token string) string { return base + Path + "/#token=" + token }

// makeLink creates a one-time link for the machine's user. Sessions cannot create links. Otherwise
// their users could stay signed in for ever.
func (c *Console) makeLink(w http.ResponseWriter, r *http.Request) {
	caller, err := c.machineUser(r)
	if err != nil {
		c.refuse(w, r, audit.Anonymous, err)
		return
	}
	var in api.CreateConsoleLink
	if err := readJSON(w, r, maxSmallBody, &in); err != nil {
		c.fail(w, r, err)
		return
	}
	scope, err := session.ParseScope(in.Scope)
	if err != nil {
		c.fail(w, r, err)
		return
	}
	const limit = int64(366 * 24 * time.Hour / time.Second)
	if in.Seconds < 0 || in.Seconds > limit {
		c.fail(w, r, fault.New(fault.Invalid, "session_life_invalid", "the lifetime of a session is too long"))
		return
	}
	secret, t, err := c.o.Sessions.Issue(r.Context(), caller.Actor(), session.Request{Name: in.Name, Scope: scope, Life: time.Duration(in.Seconds) * time.Second})
	if err != nil {
		c.fail(w, r, err)
		return
	}
	writeJSON(w, http.StatusCreated, api.ConsoleLink{
		URL: LinkOf(c.o.Base, secret), Token: secret, Scope: t.Scope.String(), ExpiresAt: t.Expires, Seconds: int64(t.Life / time.Second),
	})
}

// sessionAdmin returns the actor of a request that may manage sessions: an admin, or the machine's
// user. ownID is the ID of the admin's session.
func (c *Console) sessionAdmin(r *http.Request) (actor, ownID string, err error) {
	if len(r.CookiesNamed(CookieName)) == 0 {
		p, err := c.machineUser(r)
		return p.Actor(), "", err
	}
	s, err := c.sessionOf(r)
	if err == nil && !s.Scope.Has(session.Admin) {
		err = tooSmall(session.Admin, s)
	}
	return s.Principal().Actor(), s.ID, err
}

func (c *Console) listSessions(w http.ResponseWriter, r *http.Request) {
	actor, ownID, err := c.sessionAdmin(r)
	if err != nil {
		c.refuse(w, r, actor, err)
		return
	}
	list, err := c.o.Sessions.List(r.Context())
	if err != nil {
		c.fail(w, r, err)
		return
	}
	out := api.ConsoleSessionList{Sessions: make([]api.ConsoleSession, 0, len(list))}
	for _, s := range list {
		out.Sessions = append(out.Sessions, api.ConsoleSession{
			ID: s.ID, Name: s.Name, Scope: s.Scope.String(), CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt, Mine: s.ID == ownID,
		})
	}
	writeJSON(w, http.StatusOK, out)
}

func (c *Console) revoke(w http.ResponseWriter, r *http.Request) {
	actor, _, err := c.sessionAdmin(r)
	if err != nil {
		c.refuse(w, r, actor, err)
		return
	}
	if _, err := c.o.Sessions.End(r.Context(), actor, r.PathValue("id"), "revoked"); err != nil {
		c.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

package console

import (
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/frontend/console/session"
)

// rule is the scope that a route needs.
type rule struct {
	route string // method and pattern, below apiPath
	scope session.Scope
}

// apiRules are the routes of the /v1 API with their scopes. A route that is not listed needs an
// admin.
var apiRules = []rule{
	{"GET /v1/version", session.Viewer},
	{"GET /v1/engine", session.Viewer},
	{"GET /v1/engines", session.Viewer},
	{"GET /v1/metrics", session.Viewer},
	{"GET /v1/queue", session.Viewer},

	{"GET /v1/sandboxes", session.Viewer},
	{"POST /v1/sandboxes", session.Operator},
	{"GET /v1/sandboxes/{id}", session.Viewer},
	{"DELETE /v1/sandboxes/{id}", session.Operator},
	{"POST /v1/sandboxes/{id}/timeout", session.Operator},
	{"POST /v1/sandboxes/{id}/extend", session.Operator},
	{"POST /v1/sandboxes/{id}/pause", session.Operator},
	{"POST /v1/sandboxes/{id}/resume", session.Operator},
	{"POST /v1/sandboxes/{id}/fork", session.Operator},
	{"POST /v1/sandboxes/{id}/rollback", session.Operator},
	{"POST /v1/sandboxes/{id}/reset", session.Operator},
	{"POST /v1/sandboxes/{id}/exec", session.Operator},
	{"GET /v1/sandboxes/{id}/logs", session.Viewer},
	{"GET /v1/sandboxes/{id}/metrics", session.Viewer},
	{"GET /v1/sandboxes/{id}/processes", session.Viewer},
	{"GET /v1/sandboxes/{id}/network/log", session.Viewer},
	{"GET /v1/sandboxes/{id}/policy", session.Viewer},
	{"PUT /v1/sandboxes/{id}/access", session.Operator},
	{"POST /v1/sandboxes/{id}/access/ask", session.Operator},
	{"GET /v1/sandboxes/{id}/recordings", session.Viewer},
	{"GET /v1/sandboxes/{id}/recordings/{n}", session.Viewer},
	{"GET /v1/recordings", session.Viewer},
	{"DELETE /v1/sandboxes/{id}/recordings", session.Operator},
	{"POST /v1/sandboxes/{id}/recordings/keep", session.Operator},

	// A viewer may list a sandbox's changes. Exporting them is an action.
	{"GET /v1/changes", session.Viewer},
	{"DELETE /v1/sandboxes/{id}/changes", session.Operator},
	{"POST /v1/sandboxes/{id}/changes/keep", session.Operator},
	{"GET /v1/sandboxes/{id}/export", session.Operator},
	{"POST /v1/sandboxes/{id}/apply", session.Operator},

	{"POST /v1/sandboxes/{id}/snapshots", session.Operator},
	{"GET /v1/snapshots", session.Viewer},
	{"GET /v1/snapshots/{id}", session.Viewer},
	{"DELETE /v1/snapshots/{id}", session.Operator},

	{"POST /v1/sandboxes/{id}/commit", session.Operator},
	{"GET /v1/templates", session.Viewer},
	{"GET /v1/templates/inspect", session.Viewer},
	{"POST /v1/templates", session.Operator},
	{"POST /v1/templates/tags", session.Operator},
	{"DELETE /v1/templates", session.Operator},

	{"GET /v1/approvals", session.Viewer},
	{"GET /v1/approvals/events", session.Viewer},
	{"GET /v1/approvals/{id}", session.Viewer},
	{"POST /v1/approvals/{id}/approve", session.Operator},
	{"POST /v1/approvals/{id}/deny", session.Operator},

	{"GET /v1/record", session.Viewer},
	{"GET /v1/record/key", session.Viewer},
	{"GET /v1/record/checkpoint", session.Viewer},
	{"GET /v1/record/{seq}/proof", session.Viewer},
	{"POST /v1/record/verify", session.Viewer},
	{"GET /v1/audit", session.Viewer},
	{"GET /v1/audit/key", session.Viewer},
	{"GET /v1/audit/tree-head", session.Viewer},
	{"GET /v1/audit/{seq}/proof", session.Viewer},
	{"POST /v1/audit/verify", session.Viewer},
	{"GET /v1/provenance/key", session.Viewer},
}

// changesRoute lists changes. With text it also returns their content.
const changesRoute = "/v1/sandboxes/{id}/changes"

// changes returns the list of changed files, without their content for viewers, who may not read
// files elsewhere either.
func (c *Console) changes(w http.ResponseWriter, r *http.Request, caller session.Session) {
	if !caller.Scope.Has(session.Operator) {
		q := r.URL.Query()
		q.Del("text")
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
	}
	c.ownAPI(w, r, caller)
}

// insideRules are the routes about the inside of a sandbox. A viewer may list files and watch
// terminals, but not read files.
var insideRules = []rule{
	{"GET /sandboxes/{id}/processes", session.Viewer},
	{"DELETE /sandboxes/{id}/processes/{pid}", session.Operator},
	{"GET /sandboxes/{id}/files", session.Viewer},
	{"GET /sandboxes/{id}/file", session.Operator},
	{"PUT /sandboxes/{id}/file", session.Operator},
	{"DELETE /sandboxes/{id}/file", session.Operator},
	{"POST /sandboxes/{id}/dirs", session.Operator},
	{"POST /sandboxes/{id}/move", session.Operator},
	{"POST /sandboxes/{id}/cells", session.Operator},
	{"GET /sandboxes/{id}/terminals", session.Viewer},
	{"POST /sandboxes/{id}/terminals", session.Operator},
	{"GET /sandboxes/{id}/terminals/{pid}/attach", session.Viewer},
	{"GET /sandboxes/{id}/ports", session.Viewer},
}

// liveRules are the routes of live events.
var liveRules = []rule{
	{"GET /events", session.Viewer},
	{"PUT /events/{stream}", session.Viewer},
}

// routes lists all routes below apiPath.
func (c *Console) routes() {
	c.mux.HandleFunc("POST "+apiPath+"/session", c.signIn)
	c.mux.HandleFunc("GET "+apiPath+"/session", c.signedIn)
	c.mux.HandleFunc("DELETE "+apiPath+"/session", c.signOut)
	c.mux.HandleFunc("POST "+apiPath+"/tokens", c.makeLink)
	c.mux.HandleFunc("GET "+apiPath+"/sessions", c.listSessions)
	c.mux.HandleFunc("DELETE "+apiPath+"/sessions/{id}", c.revoke)
	c.group(apiRules, handlerFunc(c.ownAPI))
	c.handle("GET "+changesRoute, session.Viewer, handlerFunc(c.changes))
	c.handle("/v1", session.Admin, handlerFunc(c.ownAPI))
	c.handle("/v1/", session.Admin, handlerFunc(c.ownAPI))
	if c.o.Live != nil {
		c.group(liveRules, c.o.Live)
	}
	if c.o.Inside != nil {
		c.group(insideRules, c.o.Inside)
	}
	if c.o.Machine != nil {
		c.handle("GET /doctor", session.Viewer, handlerFunc(c.doctor))
		c.handle("GET /settings", session.Admin, handlerFunc(c.settings))
		c.handle("GET /templates", session.Viewer, handlerFunc(c.templates))
	}
	if c.o.Policies != nil {
		c.policyRoutes()
	}
}

// group registers routes with one handler.
func (c *Console) group(rules []rule, to session.Handler) {
	for _, r := range rules {
		c.handle(r.route, r.scope, to)
	}
}

// handle answers a route for sessions whose scope is sufficient.
func (c *Console) handle(route string, need session.Scope, to session.Handler) {
	method, pattern, ok := strings.Cut(route, " ")
	if ok {
		route = method + " " + apiPath + pattern
	} else {
		route = apiPath + route
	}
	c.mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) { c.serveAs(w, r, need, to) })
}

type handlerFunc func(w http.ResponseWriter, r *http.Request, caller session.Session)

// ServeSession implements session.Handler.
func (f handlerFunc) ServeSession(w http.ResponseWriter, r *http.Request, caller session.Session) {
	f(w, r, caller)
}

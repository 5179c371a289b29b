// Package e2b serves the control plane of the E2B API: the REST calls with which unmodified E2B
// SDKs create, find and end sandboxes, in both of their generations. It converts them to calls of
// the sandbox service. Package ingress serves requests into sandboxes.
package e2b

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
	"github.com/crannog/crannog/internal/telemetry"
)

// envdVersion is the version of the in-sandbox API that our guest implements. Clients select
// features by it.
const envdVersion = "0.6.13"

// clientID fills a field that clients require and do not use.
const clientID = "crannog"

// keyHeader carries the API key.
const keyHeader = "X-API-KEY"

// Keys checks API keys.
type Keys interface {
	// Verify returns the key of a secret. All invalid secrets give the same error of kind
	// Unauthenticated.
	Verify(ctx context.Context, secret string) (key.Key, error)
}

// Finder finds the sandboxes of a caller.
type Finder interface {
	// Get finds a sandbox by ID or name. A sandbox of another key is NotFound.
	Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
	List(ctx context.Context, caller sandbox.Principal, f sandbox.Filter) (sandbox.Page, error)
}

// Lifetimes starts and ends sandboxes, and changes when they end.
type Lifetimes interface {
	Create(ctx context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error)
	// Remove ends a sandbox. A paused sandbox loses its saved state too.
	Remove(ctx context.Context, caller sandbox.Principal, id string) error
	// SetTimeout makes a sandbox end after d from now. Zero ends it now.
	SetTimeout(ctx context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error)
	// Extend makes a sandbox end after d from now if that is later than its end. Otherwise its end
	// does not change.
	Extend(ctx context.Context, caller sandbox.Principal, id string, d time.Duration) (sandbox.Sandbox, error)
}

// Monitor returns measurements and events of a sandbox.
type Monitor interface {
	Metrics(ctx context.Context, caller sandbox.Principal, id string, from, to time.Time) ([]sandbox.Metric, error)
	Logs(ctx context.Context, caller sandbox.Principal, id string) ([]sandbox.LogEntry, error)
}

// Deps are the dependencies of New. All but UserTemplates, Builds, Domain, Secrets and Volumes are
// required.
type Deps struct {
	Finder    Finder
	Lifetimes Lifetimes
	Monitor   Monitor
	Access    Access
	States    States
	Snapshots Snapshots
	Templates sandbox.Templates
	// UserTemplates contains the templates that callers have built, and Builds builds them. Both
	// may be nil.
	UserTemplates UserTemplates
	Builds        TemplateBuilds
	Keys          Keys
	Log           *slog.Logger
	// Domain is the domain of sandboxes' host names, with a port if it is not the default one, or
	// "" if there are none.
	Domain string
	// Secrets stores secrets. If it is nil, the routes about secrets are absent.
	Secrets Secrets
	// Volumes manages volumes. If it is nil, the routes about volumes are absent.
	Volumes Volumes
}

type api struct {
	Deps
	mux *http.ServeMux
}

// call handles a request of an authenticated caller. Its error is converted to the answer.
type call func(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error

// New returns the control plane.
func New(d Deps) http.Handler {
	a := &api{Deps: d, mux: http.NewServeMux()}
	a.routes()
	return a
}

// ServeHTTP authenticates first. Without a key all routes give the same answer, and the router's
// redirects and errors reveal nothing.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		health(w)
		return
	}
	if token, ok := uploadToken(r); ok && a.Builds != nil {
		// Clients send no key with an upload; its token authorizes it.
		if err := a.receive(w, r, token); err != nil {
			a.fail(w, r, err)
		}
		return
	}
	if strings.HasPrefix(r.URL.Path, contentPath) && a.Volumes != nil {
		a.content(w, r)
		return
	}
	k, err := a.Keys.Verify(r.Context(), r.Header.Get(keyHeader))
	if err != nil {
		a.fail(w, r, err)
		return
	}
	caller := sandbox.Principal{KeyID: k.ID}
	a.mux.ServeHTTP(w, r.WithContext(withPrincipal(r.Context(), caller)))
}

func health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok\n")) // an error means that the client has left
}

// callerKey carries the caller from ServeHTTP through the router to handle, which passes it as an
// argument. No other code reads it.
type callerKey struct{}

func withPrincipal(ctx context.Context, caller sandbox.Principal) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// handle registers a call. A request without a caller cannot reach it; if one did, it would be
// refused.
func (a *api) handle(pattern string, c call) {
	a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		caller, ok := r.Context().Value(callerKey{}).(sandbox.Principal)
		if !ok || caller.KeyID == "" {
			a.fail(w, r, errNoCaller)
			return
		}
		err := c(w, r, caller)
		telemetry.Served(r.Context(), pattern, err)
		if err != nil {
			a.fail(w, r, err)
		}
	})
}

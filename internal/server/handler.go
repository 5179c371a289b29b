package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/frontend/e2b"
	"github.com/crannog/crannog/internal/frontend/ingress"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/host/peercred"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/integration/registration"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/telemetry"
)

// surfaces are all APIs of a server.
type surfaces struct {
	d         *Server
	proxy     *ingress.Proxy
	own       http.Handler // the /v1 API
	e2b       http.Handler
	frontends []openedFrontend
}

func (d *Server) surfaces() *surfaces {
	o := d.options
	var images v1.Images
	var transfer v1.ImageTransfer
	builds, commits, templates := d.makers.resources()
	templateList, templateBuilds := d.makers.forE2B()
	cache := d.packageCache()
	if o.Library != nil { // A nil pointer in an interface would not be equal to nil.
		audited := library.NewAudited(o.Library, d.Service.AuditLog())
		images, transfer = audited, audited
	}
	return &surfaces{
		d:     d,
		proxy: ingress.New(ingress.Deps{Traffic: d.Service, Waker: d.Service, Log: o.Log, Domain: o.Domain, Tap: d.tap, Actor: sender}),
		own: v1.New(v1.Deps{
			Finder: d.Service, Lifetimes: d.Service, Monitor: d.Service, Guests: d.Service,
			Access: d.Service, NetworkLog: d.Service, States: d.Service, Snapshots: d.Service,
			Images: images, ImageTransfer: transfer, PackageCache: cache, Figures: d.figures, Advisories: advisory.Open(o.StateDir), Builds: builds, Commits: commits, Templates: templates, Volumes: d.stored.volumes,
			Changes: d.Service.Changes(), Pruner: d.Service, Queue: d.Service,
			Keys: d.Keys, Engines: d.Engines, Approvals: d.Approvals,
			Auth: d.authenticate, Log: o.Log, Version: o.Version, Domain: o.Domain,
			Secrets: auditedVault{d.Secrets, d},
			Tap:     d.tap, Recordings: d.recordings, Recorded: d.Service.Recordings(),
			Audit: d.Audit, Provenance: d.provenanceKeys(),
		}),
		e2b: e2b.New(e2b.Deps{
			Finder: d.Service, Lifetimes: d.Service, Monitor: d.Service, Access: d.Service,
			States: d.Service, Snapshots: d.Service, Templates: o.Templates, UserTemplates: templateList, Builds: templateBuilds,
			Keys: d.Keys, Log: o.Log, Domain: o.Domain, Secrets: auditedVault{d.Secrets, d}, Volumes: d.stored.volumes,
		}),
	}
}

// ServeHTTP chooses the handler by the request's target. Sandboxes come first, because a program
// inside may serve any path. Then come the /v1 API, the frontends and the E2B API.
func (s *surfaces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	frontend := s.frontend(r.URL.Path)
	switch {
	case s.proxy.Match(r):
		s.observed(telemetry.SurfaceSandbox, w, r, s.proxy.ServeHTTP)
	case (r.URL.Path == livePath || r.URL.Path == readyPath) && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.d.health(w, r)
	case r.URL.Path == api.Prefix || strings.HasPrefix(r.URL.Path, api.Prefix+"/"):
		s.observed(telemetry.SurfaceV1, w, r, func(w http.ResponseWriter, r *http.Request) {
			s.d.auditRefusals(w, limitBodyTime(w, r), s.own.ServeHTTP)
		})
	case r.URL.Path == "/llms.txt" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		// The answer is the same for all callers, because it describes the program and not this
		// server.
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(registration.LLMs()))
	case s.home(r) != "":
		http.Redirect(w, r, s.home(r), http.StatusSeeOther)
	case frontend != nil:
		frontend.ServeHTTP(w, limitBodyTime(w, r))
	default:
		s.observed(telemetry.SurfaceE2B, w, r, func(w http.ResponseWriter, r *http.Request) {
			s.d.auditRefusals(w, limitBodyTime(w, r), s.e2b.ServeHTTP)
		})
	}
}

// bodyTimeout limits how long the client may take to send the body of a control request, even of a
// refused one. Otherwise an attacker without a key could hold connections by never sending bodies.
const bodyTimeout = 10 * time.Second

// limitBodyTime limits the time for reading a request's body.
func limitBodyTime(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTimeout)) != nil {
		return r // no network connection, so none can be held
	}
	limited := *r
	limited.Body = &timedBody{r.Body, rc}
	return &limited
}

// timedBody removes the time limit at the end of the body. After it, the server reads from the
// connection to notice that the client has gone, and the request may take long.
type timedBody struct {
	io.ReadCloser
	rc *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.rc.SetReadDeadline(time.Time{}) // It fails only if the connection is closed.
	}
	return n, err
}

// localKey marks a connection of the user who runs this server, or of root, with the user's ID.
type localKey struct{}

// markLocal checks the peer of a Unix socket. The socket's mode already excludes others; this check
// holds even if the mode is changed.
func markLocal(ctx context.Context, c net.Conn) context.Context {
	unix, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	cred, err := peercred.Of(unix)
	if err != nil {
		return ctx
	}
	if int(cred.Uid) != os.Geteuid() && cred.Uid != 0 {
		return ctx
	}
	return context.WithValue(ctx, localKey{}, int(cred.Uid))
}

// authenticate returns the caller of the /v1 API: one that a Frontend has authenticated, the user
// of the local socket, or the holder of a key.
func (d *Server) authenticate(r *http.Request) (sandbox.Principal, error) {
	requester, err := d.principalOf(r)
	if err == nil {
		notePrincipal(r.Context(), requester)
	}
	return requester, err
}

func (d *Server) principalOf(r *http.Request) (sandbox.Principal, error) {
	if requester, ok := callerOf(r.Context()); ok {
		return requester, nil
	}
	k, err := d.Keys.Verify(r.Context(), requestKey(r))
	if err != nil {
		return sandbox.Principal{}, err
	}
	return sandbox.Principal{KeyID: k.ID}, nil
}

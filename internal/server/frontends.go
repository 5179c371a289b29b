package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/telemetry"
)

// Frontend is an additional frontend of a server, such as the web console. A higher package creates
// it on top of the API. Close ends streams that outlast one request.
type Frontend interface {
	http.Handler
	Close()
}

// FrontendMount is the path of a Frontend, which begins with a slash. The Frontend serves it and
// all paths below it.
type FrontendMount struct {
	Path string
	Open func(Backend) Frontend
	// Home redirects browsers that open the server's root to the Frontend.
	Home bool
}

// Backend contains the services of the server for a Frontend.
type Backend struct {
	// DialAs connects to the server's own APIs within the process, for a Frontend that has
	// authenticated its caller. All requests on the connection are made by that caller, and keys in
	// them are ignored.
	DialAs func(ctx context.Context, requester sandbox.Principal) (net.Conn, error)
	// Act answers a request of the /v1 API, with its path below /v1/, for a caller that the
	// Frontend has authenticated.
	Act func(w http.ResponseWriter, r *http.Request, requester sandbox.Principal)
	// Authenticate returns the sender of a request, or fails with Unauthenticated.
	Authenticate func(*http.Request) (sandbox.Principal, error)
	Log          *slog.Logger
	// Server is the server itself. A Frontend uses it only for data that the Frontend may show.
	Server *Server
}

// ownAPIKey is the context key for the caller that a Frontend has authenticated, of a request or of
// a connection within the process. Only this file sets it. The caller is not in a header, because
// anyone could send a header over the network.
type ownAPIKey struct{}

// withCaller stores the caller in a context.
func withCaller(ctx context.Context, requester sandbox.Principal) context.Context {
	return context.WithValue(ctx, ownAPIKey{}, requester)
}

// callerOf returns the caller if the connection determines it. That is a caller that a Frontend has
// authenticated, or a user of this machine.
func callerOf(ctx context.Context) (sandbox.Principal, bool) {
	if requester, ok := ctx.Value(ownAPIKey{}).(sandbox.Principal); ok {
		return requester, true
	}
	uid, local := ctx.Value(localKey{}).(int)
	return sandbox.Principal{Local: local, UID: uid}, local
}

// sender returns the sender of a request into a sandbox for the audit log, or "". A sandbox's token
// does not identify its holder.
func sender(r *http.Request) string {
	if requester, ok := callerOf(r.Context()); ok {
		return requester.Actor()
	}
	return ""
}

// ownAPIConn is a connection within the process that acts for one caller.
type ownAPIConn struct {
	net.Conn
	requester sandbox.Principal
}

func markOwnAPI(ctx context.Context, c net.Conn) context.Context {
	if a, ok := c.(*ownAPIConn); ok {
		return withCaller(ctx, a.requester)
	}
	return ctx
}

// openedFrontend is a Frontend with its path.
type openedFrontend struct {
	path string
	home bool
	Frontend
}

func (o openedFrontend) has(path string) bool {
	return path == o.path || strings.HasPrefix(path, o.path+"/")
}

// frontend returns the Frontend of a path, or nil.
func (s *surfaces) frontend(path string) Frontend {
	for _, o := range s.frontends {
		if o.has(path) {
			return o.Frontend
		}
	}
	return nil
}

// home returns the path to which browsers are redirected from the root, or "". Other programs get
// status 404.
func (s *surfaces) home(r *http.Request) string {
	if r.URL.Path != "/" || r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return ""
	}
	for _, o := range s.frontends {
		if o.home {
			return o.path + "/"
		}
	}
	return ""
}

// act serves the /v1 API for a caller.
func (s *surfaces) act(w http.ResponseWriter, r *http.Request, requester sandbox.Principal) {
	s.observed(telemetry.SurfaceV1, w, r, func(w http.ResponseWriter, r *http.Request) {
		s.d.auditRefusals(w, r.WithContext(withCaller(r.Context(), requester)), s.own.ServeHTTP)
	})
}

// openFrontends creates the frontends and returns a function that closes them.
func (d *Server) openFrontends(handlers *surfaces) func() error {
	if len(d.options.Frontends) == 0 {
		return func() error { return nil }
	}
	pipes := newPipeListener()
	srv := &http.Server{
		Handler: handlers, ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHead, ConnContext: markOwnAPI,
		ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	in := Backend{
		DialAs: func(ctx context.Context, requester sandbox.Principal) (net.Conn, error) {
			return pipes.dialMarked(ctx, func(c net.Conn) net.Conn { return &ownAPIConn{c, requester} })
		},
		Act: handlers.act, Authenticate: d.authenticate, Log: d.options.Log, Server: d,
	}
	for _, o := range d.options.Frontends {
		handlers.frontends = append(handlers.frontends, openedFrontend{o.Path, o.Home, o.Open(in)})
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(pipes) }()
	return func() error {
		for _, o := range handlers.frontends {
			o.Close()
		}
		err := srv.Close()
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}
}

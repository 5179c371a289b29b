package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/crannog/crannog/internal/sandbox"
)

// Door is a further surface of a server, made by a package above this one on
// top of the API. Close ends what lasts longer than one request.
type Door interface {
	http.Handler
	Close()
}

// Opening is where a server has a Door: at Path, which begins with a slash,
// and below it.
type Opening struct {
	Path string
	Open func(Inside) Door
	// Home sends browsers there that ask for the server's root.
	Home bool
}

// Inside is what a Door stands on.
type Inside struct {
	// DialAs reaches the server's own surfaces over a connection that is nothing
	// but memory, for a Door that knows who asks: everything on it is done by
	// that caller, and a key on it means nothing.
	DialAs func(ctx context.Context, who sandbox.Principal) (net.Conn, error)
	// Act answers a request of the own API, with its path below /v1/, in the
	// name of a caller whom the Door knows by itself.
	Act func(w http.ResponseWriter, r *http.Request, who sandbox.Principal)
	// Authenticate says who sends a request, or fails with Unauthenticated.
	Authenticate func(*http.Request) (sandbox.Principal, error)
	Log          *slog.Logger
	// Server is the server itself. A Door asks it only for what it may show.
	Server *Server
}

// actingKey marks a request, or a connection in memory, with whom a Door says
// that it is. Only what stands in this file sets it, and nothing that comes
// over a network can: a header would be anybody's to send.
type actingKey struct{}

func acting(ctx context.Context, who sandbox.Principal) context.Context {
	return context.WithValue(ctx, actingKey{}, who)
}

// known is who asks where the connection itself says it: whom a Door has named,
// or a user of this machine.
func known(ctx context.Context) (sandbox.Principal, bool) {
	if who, ok := ctx.Value(actingKey{}).(sandbox.Principal); ok {
		return who, true
	}
	uid, local := ctx.Value(localKey{}).(int)
	return sandbox.Principal{Local: local, UID: uid}, local
}

// sender returns who sends a request into a sandbox, for the audit log, where the sender is
// known. For others the token shows what they may do, and not who they are.
func sender(r *http.Request) string {
	if who, ok := known(r.Context()); ok {
		return who.Actor()
	}
	return ""
}

// actingConn is a connection in memory that is one caller's.
type actingConn struct {
	net.Conn
	who sandbox.Principal
}

func markActing(ctx context.Context, c net.Conn) context.Context {
	if a, ok := c.(*actingConn); ok {
		return acting(ctx, a.who)
	}
	return ctx
}

// openedDoor is a Door and where it is.
type openedDoor struct {
	path string
	home bool
	Door
}

func (o openedDoor) has(path string) bool {
	return path == o.path || strings.HasPrefix(path, o.path+"/")
}

// door is the Door of a path, or nil.
func (s *surfaces) door(path string) Door {
	for _, o := range s.doors {
		if o.has(path) {
			return o.Door
		}
	}
	return nil
}

// home is where a browser belongs that asks for the root, or "". Other
// programs are told that there is nothing.
func (s *surfaces) home(r *http.Request) string {
	if r.URL.Path != "/" || r.Method != http.MethodGet || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return ""
	}
	for _, o := range s.doors {
		if o.home {
			return o.path + "/"
		}
	}
	return ""
}

// act serves the own API in somebody's name.
func (s *surfaces) act(w http.ResponseWriter, r *http.Request, who sandbox.Principal) {
	s.d.watched(w, r.WithContext(acting(r.Context(), who)), s.own.ServeHTTP)
}

// openDoors makes the doors of these surfaces and returns what closes them.
func (d *Server) openDoors(faces *surfaces) func() error {
	if len(d.options.Doors) == 0 {
		return func() error { return nil }
	}
	pipes := newPipeListener()
	srv := &http.Server{
		Handler: faces, ReadHeaderTimeout: headTimeout, MaxHeaderBytes: maxHead, ConnContext: markActing,
		ErrorLog: slog.NewLogLogger(d.options.Log.Handler(), slog.LevelDebug),
	}
	in := Inside{
		DialAs: func(ctx context.Context, who sandbox.Principal) (net.Conn, error) {
			return pipes.dialMarked(ctx, func(c net.Conn) net.Conn { return &actingConn{c, who} })
		},
		Act: faces.act, Authenticate: d.authenticate, Log: d.options.Log, Server: d,
	}
	for _, o := range d.options.Doors {
		faces.doors = append(faces.doors, openedDoor{o.Path, o.Home, o.Open(in)})
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(pipes) }()
	return func() error {
		for _, o := range faces.doors {
			o.Close()
		}
		err := srv.Close()
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}
}

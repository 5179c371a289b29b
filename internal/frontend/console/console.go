// Package console serves the web console: its files, sign-in, the permissions of sessions, and
// protection against other sites. The data of its pages comes from the API and from the handlers
// that are mounted here.
package console

import (
	"context"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/sandbox"
)

// Path is the path below which the console is served.
const Path = "/console"

const apiPath = Path + "/api"

// About is the description of the server that a session gets.
type About struct {
	Version  string
	Domain   string // domain of sandboxes' host names, or ""
	Engine   string
	Boundary string
	Started  time.Time
}

// Options configure New. Sessions, Act, Authenticate, Refused and Log are required.
type Options struct {
	Sessions *session.Registry
	// Act answers a request to the /v1 API with the permissions of a caller.
	Act func(w http.ResponseWriter, r *http.Request, caller sandbox.Principal)
	// Authenticate returns the caller of a request without a session. Only the machine's user may
	// create sign-in links.
	Authenticate func(*http.Request) (sandbox.Principal, error)
	// Refused writes an audit entry about a refused request.
	Refused func(actor, what, code string)
	// Live serves the event streams of pages, and Inside their actions inside sandboxes. Without
	// them those routes do not exist.
	Live, Inside session.Handler
	// Machine describes the server's machine; nil omits it.
	Machine Machine
	// Policies returns the policies of sandboxes; nil omits them.
	Policies Policies
	Rules    sandbox.Settings
	// History is the audit log; nil omits it.
	History History
	About   About
	// Base is the server's URL for links, such as "http://127.0.0.1:7070".
	Base string
	// Hosts are further names of the console, besides localhost and the address of the connection.
	Hosts []string
	// Files are the files of the front end's build; nil means the embedded ones.
	Files fs.FS
	Log   *slog.Logger
}

// Machine describes the server's machine.
type Machine interface {
	// Doctor returns the checks of the machine.
	Doctor(ctx context.Context) any
	// Settings returns the effective settings, without secrets.
	Settings() []config.Value
	// Templates returns the templates from which sandboxes can start.
	Templates() []Template
}

// Console is the console's handler. Close closes its streams.
type Console struct {
	o            Options
	files        files
	mux          *http.ServeMux
	openRequests openRequests
	checkup      checkup
	stop         context.CancelFunc
	expiryEnded  chan struct{}
}

// expireEvery bounds how late streams of an expired session are closed. New requests check the
// expiry themselves.
const expireEvery = 15 * time.Second

// New returns a Console.
func New(o Options) (*Console, error) {
	if o.Files == nil {
		o.Files = embeddedFiles()
	}
	files, err := listFiles(o.Files)
	if err != nil {
		return nil, err
	}
	c := &Console{o: o, files: files, mux: http.NewServeMux(), expiryEnded: make(chan struct{})}
	c.routes()
	o.Sessions.OnEnd(c.openRequests.end)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.expireSessions(ctx)
	return c, nil
}

// Close closes open streams.
func (c *Console) Close() {
	c.stop()
	<-c.expiryEnded
	c.openRequests.endAll()
}

func (c *Console) expireSessions(ctx context.Context) {
	defer close(c.expiryEnded)
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		if err := c.o.Sessions.Sweep(ctx); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("expired console sessions not removed", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ServeHTTP answers all requests below Path.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guardHeaders(w.Header())
	if err := c.checkHost(r); err != nil {
		c.refuse(w, r, audit.Anonymous, err)
		return
	}
	switch {
	case r.URL.Path == Path:
		http.Redirect(w, r, Path+"/", http.StatusMovedPermanently)
	case r.URL.Path == apiPath || strings.HasPrefix(r.URL.Path, apiPath+"/"):
		c.serveAPI(w, r)
	default:
		c.serveFile(w, r)
	}
}

// serveAPI answers the API requests of the console's pages.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request) {
	// The answer may contain text of a sandbox. A browser that opens it directly must not treat it
	// as a page.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	w.Header().Set("Cache-Control", "no-store")
	if err := checkOrigin(r); err != nil {
		c.refuse(w, r, audit.Anonymous, err)
		return
	}
	if err := checkBodyType(r); err != nil {
		v1.WriteProblem(w, err)
		return
	}
	if _, pattern := c.mux.Handler(r); pattern == "" || !isCanonicalPath(r) {
		v1.WriteProblem(w, notFound(r))
		return
	}
	inert := &inertWriter{ResponseWriter: w}
	c.mux.ServeHTTP(inert, r)
}

// refuse answers that the caller has no permission, and writes an audit entry.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, actor string, err error) {
	c.o.Refused(actor, r.Method+" "+r.URL.Path, fault.CodeOf(err))
	v1.WriteProblem(w, err)
}

// fail answers with an error. Only the log contains its cause.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	if fault.KindOf(err) == fault.Internal {
		c.o.Log.ErrorContext(r.Context(), "request failed", "request", r.URL.Path, "err", err)
	}
	v1.WriteProblem(w, err)
}

func notFound(r *http.Request) error {
	return fault.Newf(fault.NotFound, "route_not_found", "there is no %s %s", r.Method, r.URL.Path)
}

// Package console owns the front gate of the web console: its files, who is
// signed in, what a session's scope lets it do, and the guards that keep other
// sites out. What the pages show comes from the API and from the handlers that
// are mounted here.
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

// Path is below what the console is served.
const Path = "/console"

const apiPath = Path + "/api"

// About is what a session is told of the server.
type About struct {
	Version  string
	Domain   string // what sandboxes' host names end in, or ""
	Engine   string
	Boundary string
	Started  time.Time
}

// Options are what a Console stands on. Desk, Act, Authenticate, Refused and
// Log are required.
type Options struct {
	Desk *session.Registry
	// Act answers a request of the own API in somebody's name.
	Act func(w http.ResponseWriter, r *http.Request, who sandbox.Principal)
	// Authenticate says who comes without a session: the machine's user may
	// make links.
	Authenticate func(*http.Request) (sandbox.Principal, error)
	// Refused puts on record that a request was turned away.
	Refused func(actor, what, code string)
	// Live and Inside answer what pages watch, and what they do inside
	// sandboxes. Without them those routes are not there.
	Live, Inside session.Handler
	// Machine is what pages show of the server's machine; nil is nothing.
	Machine Machine
	// Policies are the rules of sandboxes, below those of Rules; nil is none.
	Policies Policies
	Rules    sandbox.Settings
	// History is the record; nil is none.
	History History
	About   About
	// Base is the server's URL for links, such as "http://127.0.0.1:7070".
	Base string
	// Hosts are names by which the console may be reached, besides localhost
	// and the address of the connection.
	Hosts []string
	// Files are what the front end's build made; nil is what this program
	// carries.
	Files fs.FS
	Log   *slog.Logger
}

// Machine tells of the server's machine.
type Machine interface {
	// Doctor looks for what keeps sandboxes from running well.
	Doctor(ctx context.Context) any
	// Settings are the effective ones, without what is secret.
	Settings() []config.Value
	// Templates are what sandboxes can start from.
	Templates() []Template
}

// Console is the console's handler. Close ends what lasts.
type Console struct {
	o       Options
	files   files
	mux     *http.ServeMux
	open    open
	checkup checkup
	stop    context.CancelFunc
	swept   chan struct{}
}

// sweepEvery is how late a session may be cut whose time is up while
// something of it is open. A new request finds out by itself.
const sweepEvery = 15 * time.Second

// New makes a Console.
func New(o Options) (*Console, error) {
	if o.Files == nil {
		o.Files = carried()
	}
	files, err := listFiles(o.Files)
	if err != nil {
		return nil, err
	}
	c := &Console{o: o, files: files, mux: http.NewServeMux(), swept: make(chan struct{})}
	c.routes()
	o.Desk.OnEnd(c.open.end)
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	go c.sweep(ctx)
	return c, nil
}

// Close cuts what is open.
func (c *Console) Close() {
	c.stop()
	<-c.swept
	c.open.endAll()
}

func (c *Console) sweep(ctx context.Context) {
	defer close(c.swept)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if err := c.o.Desk.Sweep(ctx); err != nil && ctx.Err() == nil {
			c.o.Log.Warn("sessions of the console not swept", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ServeHTTP answers everything below Path.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guardHeaders(w.Header())
	if err := c.rightHost(r); err != nil {
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

// serveAPI answers requests of pages.
func (c *Console) serveAPI(w http.ResponseWriter, r *http.Request) {
	// What a sandbox chose goes out here too. Opened by itself it is no page.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
	w.Header().Set("Cache-Control", "no-store")
	if err := ownPage(r); err != nil {
		c.refuse(w, r, audit.Anonymous, err)
		return
	}
	if err := plainBody(r); err != nil {
		v1.WriteProblem(w, err)
		return
	}
	if _, pattern := c.mux.Handler(r); pattern == "" || !oneForm(r) {
		v1.WriteProblem(w, notThere(r))
		return
	}
	inert := &inertWriter{ResponseWriter: w}
	c.mux.ServeHTTP(inert, r)
}

// refuse answers that somebody may not, and puts it on record.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, actor string, err error) {
	c.o.Refused(actor, r.Method+" "+r.URL.Path, fault.CodeOf(err))
	v1.WriteProblem(w, err)
}

// fail answers with an error, whose cause only the log shows.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, err error) {
	if fault.KindOf(err) == fault.Internal {
		c.o.Log.ErrorContext(r.Context(), "request failed", "request", r.URL.Path, "err", err)
	}
	v1.WriteProblem(w, err)
}

func notThere(r *http.Request) error {
	return fault.Newf(fault.NotFound, "route_not_found", "there is no %s %s", r.Method, r.URL.Path)
}

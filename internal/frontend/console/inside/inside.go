// Package inside serves the console's actions inside a sandbox: processes, files, code cells,
// shared terminals, and ports. Text of a sandbox is treated as data: it is bounded, and never
// interpreted.
package inside

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/sandbox"
)

// Path is the path below which these routes are served, followed by the ID or name of a sandbox.
const Path = "/console/api/sandboxes/"

// Sandboxes finds sandboxes; sandbox.Service implements it.
type Sandboxes interface {
	Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
}

// Census lists the processes of a sandbox; sandbox.Service implements it.
type Census interface {
	Census(ctx context.Context, caller sandbox.Principal, ref string) (census.Census, error)
	SignalProcess(ctx context.Context, caller sandbox.Principal, ref string, pid int, sig syscall.Signal) error
}

// AuditLog writes audit entries; audit.Log implements it.
type AuditLog interface {
	Append(ctx context.Context, drafts ...audit.Draft) error
	Note(drafts ...audit.Draft) error
}

// Deps are the dependencies of New. All but Domain are required.
type Deps struct {
	Sandboxes Sandboxes
	Census    Census
	// Dial connects to the server's own APIs for a caller. All requests into a sandbox go through
	// them, so that answers are redacted and audit entries written.
	Dial  func(ctx context.Context, caller sandbox.Principal) (net.Conn, error)
	Audit AuditLog
	Log   *slog.Logger
	// Domain is the domain of sandboxes' host names; "" means localhost.
	Domain string
}

// Inside serves pages about the inside of sandboxes. It is safe for concurrent use.
type Inside struct {
	deps  Deps
	mux   *http.ServeMux
	rates rates

	ctx    context.Context // ends all terminals when it is done
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu   sync.Mutex
	hubs map[hubKey]*hub
}

var _ session.Handler = (*Inside)(nil)

// New returns an Inside. Close ends it.
func New(d Deps) (*Inside, error) {
	if d.Sandboxes == nil || d.Census == nil || d.Dial == nil || d.Audit == nil || d.Log == nil {
		return nil, errors.New("inside of sandboxes: a dependency is missing")
	}
	x := &Inside{deps: d, mux: http.NewServeMux(), hubs: map[hubKey]*hub{}}
	x.ctx, x.cancel = context.WithCancel(context.Background())
	x.routes()
	return x, nil
}

// Close closes all terminals; their programs keep running in their sandboxes.
func (x *Inside) Close() {
	x.cancel()
	x.work.Wait()
}

// routes lists all routes. Routes that change something, or read the content of files, need an
// operator.
func (x *Inside) routes() {
	x.handle("GET processes", session.Viewer, x.processes)
	x.handle("DELETE processes/{pid}", session.Operator, x.endProcess)
	x.handle("GET files", session.Viewer, x.listFiles)
	x.handle("GET file", session.Operator, x.download)
	x.handle("PUT file", session.Operator, x.upload)
	x.handle("DELETE file", session.Operator, x.removeFile)
	x.handle("POST dirs", session.Operator, x.makeDir)
	x.handle("POST move", session.Operator, x.moveFile)
	x.handle("POST cells", session.Operator, x.cell)
	x.handle("GET ports", session.Viewer, x.ports)
	x.handle("GET terminals", session.Viewer, x.terminals)
	x.handle("POST terminals", session.Operator, x.openTerminal)
	x.handle("GET terminals/{pid}/attach", session.Viewer, x.attach)
	x.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		v1.WriteProblem(w, fault.New(fault.NotFound, "route_not_found", "there is no such page of a sandbox"))
	})
}

// sessionKey carries the session through the mux to handle.
type sessionKey struct{}

// visit is one request about a running sandbox.
type visit struct {
	caller session.Session
	sb     sandbox.Sandbox
}

// handle adds a route. The package console has checked the scope already. If its table lacks a
// route, this check still refuses callers without the scope.
func (x *Inside) handle(route string, need session.Scope, h func(http.ResponseWriter, *http.Request, visit) error) {
	method, path, _ := strings.Cut(route, " ")
	x.mux.HandleFunc(method+" "+Path+"{id}/"+path, func(w http.ResponseWriter, r *http.Request) {
		caller, _ := r.Context().Value(sessionKey{}).(session.Session)
		err := func() error {
			if caller.ID == "" || !caller.Scope.Has(need) {
				return fault.Newf(fault.Denied, "scope_too_small", "this needs the scope %s", need)
			}
			sb, err := x.running(r.Context(), caller, r.PathValue("id"))
			if err != nil {
				return err
			}
			return h(w, r, visit{caller, sb})
		}()
		if err != nil {
			x.fail(w, r, err)
		}
	})
}

// running returns a running sandbox. It does not resume a paused sandbox, because looking at a page
// must not change a sandbox.
func (x *Inside) running(ctx context.Context, caller session.Session, ref string) (sandbox.Sandbox, error) {
	sb, err := x.deps.Sandboxes.Get(ctx, caller.Principal(), ref)
	if err != nil {
		return sb, err
	}
	if sb.State != sandbox.Running {
		return sb, fault.Newf(fault.Conflict, "sandbox_not_running", "the sandbox is %s", sb.State).
			WithHint("its changes, snapshots and audit entries have pages of their own")
	}
	return sb, nil
}

// ServeSession answers a request of a page.
func (x *Inside) ServeSession(w http.ResponseWriter, r *http.Request, caller session.Session) {
	x.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), sessionKey{}, caller)))
}

func (x *Inside) fail(w http.ResponseWriter, r *http.Request, err error) {
	if fault.KindOf(err) == fault.Internal && r.Context().Err() == nil {
		x.deps.Log.ErrorContext(r.Context(), "request failed", "request", r.Method+" "+r.URL.Path, "err", err)
	}
	v1.WriteProblem(w, err)
}

// maxMessage bounds a sandbox's text in an answer.
const maxMessage = 1 << 10

// clipMessage returns a text of a sandbox, bounded and without control characters.
func clipMessage(message string) string { return text.Clip(text.Lines(message), maxMessage) }

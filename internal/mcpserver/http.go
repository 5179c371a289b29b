package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/fault/httpstatus"
	"github.com/crannog/crannog/internal/host/ticker"
)

// HTTPOptions configure NewHTTP. Authenticate, Dial, Refused and Log are required.
type HTTPOptions struct {
	// Authenticate returns the ID of a request's key. It fails with Unauthenticated, or with Denied
	// if the key has another purpose.
	Authenticate func(*http.Request) (string, error)
	// Dial connects to the server's API. Requests on the connection are made by the holder of the
	// key with this ID, and have only that key's rights.
	Dial func(ctx context.Context, key string) (net.Conn, error)
	// Refused writes an audit entry about a refused request, or about a refused decision of an
	// approval request. actor is "" if the caller is unknown.
	Refused  func(actor, what, code string)
	Log      *slog.Logger
	Version  string
	Hosts    []string // names of this server, in addition to addresses and localhost
	Approver Approver
	// Idle is how long a default sandbox lives after its last use; zero means an hour.
	Idle time.Duration
	// Extend changes each server of the protocol in tests.
	Extend Extension
}

// Limits of the endpoint. Each needs memory, and the holder of a key may be an agent in a loop.
const (
	maxKeys    = 256     // keys in use at once
	maxBody    = 8 << 20 // size of a message; it may contain a file
	maxViews   = 64      // views of a key
	maxQuery   = 4 << 10 // of a URL
	tenantIdle = 2 * time.Hour
	sweepEvery = time.Minute
)

// HTTP serves MCP over streamable HTTP, below /mcp. Each key has its own Tenant, and cannot reach
// that of another key.
type HTTP struct {
	o        HTTPOptions
	guard    guard
	replays  *replays
	pictures *pictures
	stop     func() // ends the periodic sweep

	mu      sync.Mutex
	tenants map[string]*keyTenant // by the key's ID
	closed  bool
}

// NewHTTP returns an HTTP. Close ends it.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	if o.Authenticate == nil || o.Dial == nil || o.Refused == nil || o.Log == nil {
		return nil, errors.New("mcpserver: an option is missing")
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	h := &HTTP{o: o, guard: newGuard(o.Hosts...), replays: newReplays(), pictures: newPictures(), tenants: map[string]*keyTenant{}}
	h.stop = ticker.Every(context.Background(), sweepEvery, h.sweep)
	return h, nil
}

// Close ends all sessions. Sandboxes and their programs keep running.
func (h *HTTP) Close() {
	h.stop()
	h.mu.Lock()
	tenants := h.tenants
	h.tenants, h.closed = map[string]*keyTenant{}, true
	h.mu.Unlock()
	for _, d := range tenants {
		d.close()
	}
}

// ServeHTTP answers /mcp and /mcp/s/NAME.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if err := h.guard.check(r); err != nil {
		h.refuseRequest(w, r, http.StatusForbidden, err)
		return
	}
	id, err := h.o.Authenticate(r)
	if err != nil {
		status := http.StatusForbidden
		if fault.KindOf(err) != fault.Denied {
			w.Header().Set("WWW-Authenticate", `Bearer realm="crannog"`)
			status = http.StatusUnauthorized
		}
		h.refuseRequest(w, r, status, err)
		return
	}
	v, err := viewOf(r)
	if err != nil {
		refuse(w, httpstatus.Of(err), err)
		return
	}
	d, err := h.tenant(id)
	if err == nil {
		defer d.enter()()
		var e *endpoint
		if e, err = d.endpoint(v); err == nil {
			var leave func()
			if r, leave, err = d.admit(v, r); err == nil {
				defer leave()
				e.ServeHTTP(w, r)
				return
			}
		}
	}
	status := httpstatus.Of(err)
	if status >= http.StatusInternalServerError {
		h.o.Log.Error("mcp endpoint failed", "err", err)
	}
	refuse(w, status, err)
}

// refuseRequest refuses a request and writes an audit entry.
func (h *HTTP) refuseRequest(w http.ResponseWriter, r *http.Request, status int, err error) {
	h.o.Refused("", r.Method+" "+r.URL.Path, fault.CodeOf(err))
	refuse(w, status, err)
}

// stateless is the first version of the protocol without sessions.
const stateless = "2026-07-28"

// viewOf returns the view for a request's path and query.
func viewOf(r *http.Request) (View, error) {
	v := View{Stateless: r.Header.Get("Mcp-Protocol-Version") >= stateless}
	if len(r.URL.RawQuery) > maxQuery {
		return v, fault.New(fault.Invalid, "invalid_query", "the query is too long")
	}
	switch rest, bound := strings.CutPrefix(r.URL.Path, "/mcp/s/"); {
	case bound && rest != "" && len(rest) <= 128 && !strings.ContainsAny(rest, "/\x00"):
		v.Bound = rest
	case r.URL.Path != "/mcp":
		return v, fault.New(fault.NotFound, "route_not_found", "MCP is at /mcp and /mcp/s/NAME")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		// An unread part of the query could have contained read_only.
		return v, fault.New(fault.Invalid, "invalid_query", "the query cannot be read")
	}
	for name, values := range query {
		switch {
		case name == "tools" && len(values) == 1:
			v.Tools = strings.Split(values[0], ",")
		case name == "read_only" && len(values) == 1 && (values[0] == "true" || values[0] == "false"):
			v.ReadOnly = values[0] == "true"
		default:
			// A client with a misspelt read_only must not get write access.
			return v, fault.Newf(fault.Invalid, "invalid_query", "%q is not tools=core,admin or read_only=true", oneLine(name))
		}
	}
	return v, v.Check()
}

// refuse answers in the API's format.
func refuse(w http.ResponseWriter, status int, err error) {
	kind, code, text, hint := explain(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// A write error means that the client has gone.
	_ = json.NewEncoder(w).Encode(api.Problem{
		Kind: kind, Code: code, Title: http.StatusText(status), Detail: text, Hint: hint, Status: status,
	})
}

// dropTenant makes room by removing the Tenant that has been idle for longest. It does not remove
// Tenants that were used recently. The caller holds h.mu.
func (h *HTTP) dropTenant() bool {
	var key string
	longest := sessionIdle
	for id, d := range h.tenants {
		if idle := d.idle(); idle > longest {
			key, longest = id, idle
		}
	}
	d := h.tenants[key]
	if d == nil {
		return false
	}
	delete(h.tenants, key)
	d.close()
	return true
}

// tenant returns the Tenant of a key.
func (h *HTTP) tenant(id string) (*keyTenant, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fault.New(fault.Exhausted, "closing", "the server is shutting down")
	}
	if d := h.tenants[id]; d != nil {
		return d, nil
	}
	if len(h.tenants) >= maxKeys && !h.dropTenant() {
		return nil, fault.New(fault.Exhausted, "too_many_keys", "too many keys are in use")
	}
	d, err := h.newTenant(id)
	if err != nil {
		return nil, err
	}
	h.tenants[id] = d
	return d, nil
}

// noRedirect makes a client follow no redirect: a hostile guest could redirect a call to the
// server's own API.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (h *HTTP) newTenant(id string) (*keyTenant, error) {
	conns := newAPIConns(func(ctx context.Context) (net.Conn, error) { return h.o.Dial(ctx, id) })
	client, err := crannog.New(crannog.URL("http://localhost"), crannog.HTTP(&http.Client{Transport: conns.transport(), CheckRedirect: noRedirect}))
	if err != nil {
		return nil, err
	}
	tenant, err := NewTenant(Options{
		Client: client, Log: h.o.Log, Version: h.o.Version, Labelled: true, All: true, Idle: h.o.Idle, Approver: h.o.Approver, Extend: h.o.Extend,
		Refused: func(what, code string) { h.o.Refused("key:"+id, what, code) },
		// With a network, approval requests of an agent can be granted while it works.
		Create: []crannog.CreateOption{crannog.Net("policy"), crannog.Timeout(h.o.Idle)},
	})
	if err != nil {
		return nil, err
	}
	tenant.pictures = h.pictures
	return &keyTenant{Tenant: tenant, conns: conns, replay: h.replays.key(), endpoints: map[string]*endpoint{}, uses: map[string]*use{}}, nil
}

// sweep ends sessions and removes Tenants that have been idle for too long. For the other Tenants
// it drops the state of ended sandboxes.
func (h *HTTP) sweep(ctx context.Context) {
	h.replays.sweep()
	h.mu.Lock()
	tenants := slices.Collect(maps.Values(h.tenants))
	h.mu.Unlock()
	for _, d := range tenants {
		d.endIdle()
	}
	var gone, kept []*keyTenant
	h.mu.Lock()
	for id, d := range h.tenants {
		if d.idle() > tenantIdle {
			delete(h.tenants, id)
			gone = append(gone, d)
		} else {
			kept = append(kept, d)
		}
	}
	h.mu.Unlock()
	for _, d := range gone {
		d.close()
	}
	// The order is random, so one slow Tenant does not always delay the same others.
	ctx, cancel := context.WithTimeout(ctx, sweepEvery)
	defer cancel()
	for _, d := range kept {
		d.sweep(ctx)
	}
}

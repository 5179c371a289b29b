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

// HTTPOptions say what an HTTP endpoint stands on. Authenticate, Dial, Refused
// and Log are required.
type HTTPOptions struct {
	// Authenticate returns the ID of the key that a request shows, or fails
	// with Unauthenticated, or with Denied if the key is for something else.
	Authenticate func(*http.Request) (string, error)
	// Dial reaches the server's API. What comes that way is done by the holder
	// of a key, which it names by its ID, and has that key's rights alone.
	Dial func(ctx context.Context, key string) (net.Conn, error)
	// Refused writes an audit entry about a request, or an answer to an approval
	// request, that was turned away. actor is "" if the caller is unknown.
	Refused  func(actor, what, code string)
	Log      *slog.Logger
	Version  string
	Hosts    []string // names of this server, besides addresses and localhost
	Approver Approver
	// Idle is how long a default sandbox lives after its last use; zero is an
	// hour.
	Idle time.Duration
	// Extend adds to each server of the protocol.
	Extend Extension
}

// Bounds of the endpoint. Each holds memory, and a key's holder may be an
// agent in a loop.
const (
	maxKeys    = 256     // keys at work at once
	maxBody    = 8 << 20 // a message; files go in one
	maxViews   = 64      // ways in which a key looks at its desk
	maxQuery   = 4 << 10 // of a URL
	deskIdle   = 2 * time.Hour
	sweepEvery = time.Minute
)

// HTTP serves MCP over streamable HTTP, below /mcp. Each key has a Desk of its
// own, and nothing of one key is reached by another.
type HTTP struct {
	o        HTTPOptions
	guard    guard
	said     *replays
	pictures *pictures
	stop     func() // the sweeping

	mu     sync.Mutex
	desks  map[string]*keyDesk // by the key's ID
	closed bool
}

// NewHTTP returns an endpoint. Close ends it.
func NewHTTP(o HTTPOptions) (*HTTP, error) {
	if o.Authenticate == nil || o.Dial == nil || o.Refused == nil || o.Log == nil {
		return nil, errors.New("mcpserver: an option is missing")
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	h := &HTTP{o: o, guard: newGuard(o.Hosts...), said: newReplays(), pictures: newPictures(), desks: map[string]*keyDesk{}}
	h.stop = ticker.Every(context.Background(), sweepEvery, h.sweep)
	return h, nil
}

// Close ends all sessions. Sandboxes and what runs in them live on.
func (h *HTTP) Close() {
	h.stop()
	h.mu.Lock()
	desks := h.desks
	h.desks, h.closed = map[string]*keyDesk{}, true
	h.mu.Unlock()
	for _, d := range desks {
		d.close()
	}
}

// ServeHTTP answers /mcp and /mcp/s/NAME.
func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if err := h.guard.check(r); err != nil {
		h.turnAway(w, r, http.StatusForbidden, err)
		return
	}
	id, err := h.o.Authenticate(r)
	if err != nil {
		status := http.StatusForbidden
		if fault.KindOf(err) != fault.Denied {
			w.Header().Set("WWW-Authenticate", `Bearer realm="crannog"`)
			status = http.StatusUnauthorized
		}
		h.turnAway(w, r, status, err)
		return
	}
	v, err := viewOf(r)
	if err != nil {
		refuse(w, httpstatus.Of(err), err)
		return
	}
	d, err := h.desk(id)
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

// turnAway refuses a request of somebody who is not let in, on record.
func (h *HTTP) turnAway(w http.ResponseWriter, r *http.Request, status int, err error) {
	h.o.Refused("", r.Method+" "+r.URL.Path, fault.CodeOf(err))
	refuse(w, status, err)
}

// stateless is the first version of the protocol that has no sessions.
const stateless = "2026-07-28"

// viewOf reads what a request wants to see from its path and query.
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
		// What is passed over could have been read_only.
		return v, fault.New(fault.Invalid, "invalid_query", "the query cannot be read")
	}
	for name, values := range query {
		switch {
		case name == "tools" && len(values) == 1:
			v.Tools = strings.Split(values[0], ",")
		case name == "read_only" && len(values) == 1 && (values[0] == "true" || values[0] == "false"):
			v.ReadOnly = values[0] == "true"
		default:
			// A misspelt read_only must not be a client that may write.
			return v, fault.Newf(fault.Invalid, "invalid_query", "%q is not tools=core,admin or read_only=true", oneLine(name))
		}
	}
	return v, v.Check()
}

// refuse answers as the rest of the API does.
func refuse(w http.ResponseWriter, status int, err error) {
	kind, code, text, hint := explain(err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	// A write error means that the client has left.
	_ = json.NewEncoder(w).Encode(api.Problem{
		Kind: kind, Code: code, Title: http.StatusText(status), Detail: text, Hint: hint, Status: status,
	})
}

// dropDesk makes room by forgetting the desk that has been idle for longest. One
// that was used a short time ago stays. h.mu must be held.
func (h *HTTP) dropDesk() bool {
	var key string
	longest := sessionIdle
	for id, d := range h.desks {
		if idle := d.idle(); idle > longest {
			key, longest = id, idle
		}
	}
	d := h.desks[key]
	if d == nil {
		return false
	}
	delete(h.desks, key)
	d.close()
	return true
}

// desk returns the desk of a key.
func (h *HTTP) desk(id string) (*keyDesk, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, fault.New(fault.Exhausted, "closing", "the server ends")
	}
	if d := h.desks[id]; d != nil {
		return d, nil
	}
	if len(h.desks) >= maxKeys && !h.dropDesk() {
		return nil, fault.New(fault.Exhausted, "too_many_keys", "too many keys are at work")
	}
	d, err := h.newDesk(id)
	if err != nil {
		return nil, err
	}
	h.desks[id] = d
	return d, nil
}

// stay follows no redirect: a hostile guest could send a call to the server's own API.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (h *HTTP) newDesk(id string) (*keyDesk, error) {
	links := newLinks(func(ctx context.Context) (net.Conn, error) { return h.o.Dial(ctx, id) })
	client, err := crannog.New(crannog.URL("http://localhost"), crannog.HTTP(&http.Client{Transport: links.transport(), CheckRedirect: stay}))
	if err != nil {
		return nil, err
	}
	desk, err := NewDesk(Options{
		Client: client, Log: h.o.Log, Version: h.o.Version, Labelled: true, All: true, Idle: h.o.Idle, Approver: h.o.Approver, Extend: h.o.Extend,
		Refused: func(what, code string) { h.o.Refused("key:"+id, what, code) },
		// With a link, what an agent asks for can be allowed while it works.
		Create: []crannog.CreateOption{crannog.Net("policy"), crannog.Timeout(h.o.Idle)},
	})
	if err != nil {
		return nil, err
	}
	desk.pictures = h.pictures
	return &keyDesk{Desk: desk, links: links, said: h.said.key(), endpoints: map[string]*endpoint{}, uses: map[string]*use{}}, nil
}

// sweep ends sessions that have been idle for too long. It forgets desks that
// have not been used for long, and of the others the sandboxes that have ended.
func (h *HTTP) sweep(ctx context.Context) {
	h.said.sweep()
	h.mu.Lock()
	desks := slices.Collect(maps.Values(h.desks))
	h.mu.Unlock()
	for _, d := range desks {
		d.endIdle()
	}
	var gone, stay []*keyDesk
	h.mu.Lock()
	for id, d := range h.desks {
		if d.idle() > deskIdle {
			delete(h.desks, id)
			gone = append(gone, d)
		} else {
			stay = append(stay, d)
		}
	}
	h.mu.Unlock()
	for _, d := range gone {
		d.close()
	}
	// Of a map, so that one desk that is slow to learn of its sandboxes keeps
	// others from it now and then and not for ever.
	ctx, cancel := context.WithTimeout(ctx, sweepEvery)
	defer cancel()
	for _, d := range stay {
		d.sweep(ctx)
	}
}

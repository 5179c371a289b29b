// Package ingress forwards HTTP requests into sandboxes: it finds the sandbox and port of a
// request, by headers, host name or a file URL's signature, forwards the request, and has the
// answer redacted.
package ingress

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
	"github.com/crannog/crannog/internal/frontend/ingress/redaction"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/host/interrupt"
	"github.com/crannog/crannog/internal/sandbox"
)

// TrafficHeader carries the token that private ports require.
const TrafficHeader = "E2b-Traffic-Access-Token"

// Traffic finds running sandboxes and connects to them. The proxy authenticates by the sandbox's
// own tokens, so it has no Principal.
type Traffic interface {
	// Live returns a running sandbox.
	Live(id string) (sandbox.Sandbox, bool)
	// LiveAll calls yield for each running sandbox until it returns false. Signed file URLs
	// name no sandbox, so the proxy compares signatures.
	LiveAll(yield func(sandbox.Sandbox) bool)
	// Dial opens a stream to a port inside. A sandbox that has ended is NotFound; one that
	// is being paused or resumed, or has been replaced, is a Conflict.
	Dial(ctx context.Context, id string, port int) (net.Conn, error)
	// Redactor returns the redactor for all output of the sandbox. After an error no output may be
	// passed on. Its errors are those of Dial.
	Redactor(ctx context.Context, id string) (*sandbox.Redactor, error)
	// Gone returns a channel that is closed when the sandbox's instance ends, so that open
	// streams can be cut, or nil for an unknown sandbox.
	Gone(id string) <-chan struct{}
}

// Waker resumes paused sandboxes on traffic.
type Waker interface {
	// ResumesOnTraffic returns a paused sandbox that resumes on traffic. The proxy checks its
	// tokens first, so that callers without one cannot resume it.
	ResumesOnTraffic(ctx context.Context, id string) (sandbox.Sandbox, bool)
	// AllResumingOnTraffic calls yield for each such sandbox until yield returns false.
	AllResumingOnTraffic(ctx context.Context, yield func(sandbox.Sandbox) bool)
	// Wake resumes a paused sandbox that resumes on traffic, and waits until it runs. For any other
	// sandbox that is not running it returns NotFound.
	Wake(ctx context.Context, id string) (sandbox.Sandbox, error)
}

// Deps are the dependencies of New. All but Domain and Tap are required.
type Deps struct {
	Traffic Traffic
	Waker   Waker
	Log     *slog.Logger
	// Domain is the domain of sandboxes' host names, or "".
	Domain string
	// Tap writes audit entries about requests. If it is nil, none are written.
	Tap *observe.Tap
	// Actor returns the actor of a request for the audit log. It returns "" if only the sandbox's
	// token identifies the sender.
	Actor func(*http.Request) string
}

// Proxy forwards requests into sandboxes. It handles those requests that Match; the control plane
// handles all others.
type Proxy struct {
	Deps
	forward *httputil.ReverseProxy
	ctx     context.Context // of resumes, which outlive their requests
	cancel  context.CancelFunc
	search  sync.Mutex // at most one search through all paused sandboxes at a time

	mu             sync.Mutex
	backends       map[string]*backend
	pendingResumes map[string]*pendingResume
	closed         bool
}

// New returns a Proxy. Close ends it.
func New(d Deps) *Proxy {
	p := &Proxy{Deps: d, backends: map[string]*backend{}, pendingResumes: map[string]*pendingResume{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.forward = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      roundTripper{},
		FlushInterval:  -1, // flush at once: there may be a terminal on the other side
		ModifyResponse: modifyResponse,
		ErrorHandler:   p.failed,
		ErrorLog:       slog.NewLogLogger(d.Log.Handler(), slog.LevelDebug),
	}
	return p
}

// Close closes all connections. Later requests find no sandbox.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	open := p.backends
	p.backends = map[string]*backend{}
	p.mu.Unlock()
	p.cancel()
	for _, b := range open {
		b.close()
	}
}

// trip is one forwarded request, with the data that rewrite, the transport and the error handler
// need.
type trip struct {
	target
	sb       sandbox.Sandbox
	back     *backend
	redactor *sandbox.Redactor
	visit    *observe.Visit
	// sent means that a connection was used. unsent means that none was used because the sandbox
	// had just ended, so that the request may be retried when the sandbox is back.
	sent, unsent bool
}

type tripKey struct{}

func tripOf(r *http.Request) *trip {
	t, _ := r.Context().Value(tripKey{}).(*trip)
	return t
}

// ServeHTTP forwards a request, or answers with the reason why it cannot be forwarded.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, refusal := p.route(r)
	if refusal != nil {
		refusal.write(w, r)
		return
	}
	again := true
	for attempt := 0; again && attempt < maxAttempts; attempt++ {
		t, refusal, err := p.lookUp(r, to)
		switch {
		case refusal != nil:
			p.recordDenied(r, to, refusal)
			refusal.write(w, r)
			return
		case err != nil && !isAway(err):
			p.rejectUnredactable(w, r, to, err)
			return
		case err == nil:
			if served := p.serve(w, r, t); served {
				return
			}
		}
		var answered bool
		if again, answered = p.resumeFor(w, r, to); answered {
			return
		}
		// Another request may have resumed the sandbox in the meantime.
		again = again || attempt == 0
	}
	notFound(to.id).write(w, r)
}

// isAway reports whether an error is about a sandbox that is not running. All such errors have the
// same status, because clients take other statuses for errors of a running sandbox.
func isAway(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.NotFound || kind == fault.Conflict
}

// lookUp returns the backend and the redactor of a running sandbox. For any other sandbox its error
// satisfies isAway.
func (p *Proxy) lookUp(r *http.Request, to target) (*trip, *refusal, error) {
	sb, ok := p.Traffic.Live(to.id)
	if !ok {
		return nil, nil, sandbox.Unknown(to.id)
	}
	if refusal := admit(r, to, sb); refusal != nil {
		return nil, refusal, nil
	}
	back, ok := p.backend(to.id)
	if !ok {
		return nil, nil, sandbox.Unknown(to.id)
	}
	redactor, err := p.Traffic.Redactor(r.Context(), to.id)
	return &trip{target: to, sb: sb, back: back, redactor: redactor}, nil, err
}

// recordDenied writes an audit entry about a caller without the token of a private port.
func (p *Proxy) recordDenied(r *http.Request, to target, refusal *refusal) {
	if refusal.status == http.StatusForbidden {
		p.Tap.TurnedAway(to.id, r.Method, to.port)
	}
}

// admit rejects requests that must not reach the sandbox: for the guest's private paths, with the
// CONNECT method, for private ports without their token, and for the browser without the sandbox's.
func admit(r *http.Request, to target, sb sandbox.Sandbox) *refusal {
	if r.Method == http.MethodConnect {
		return &refusal{status: http.StatusMethodNotAllowed, id: to.id, message: "CONNECT is not supported"}
	}
	if r.URL.Opaque != "" {
		// For "GET x:http://x/_crannog/ready" the path is empty here, but the guest would parse
		// one, which the check below would not see.
		return badRequest("the request's target is not a path")
	}
	if to.port == guestboot.Port {
		// The guest checks its own token.
		if reserved(r.URL) {
			return reservedPath(r.URL.Path)
		}
		return nil
	}
	if to.port == guestboot.DevToolsPort {
		// This does not depend on how the sandbox was created: its ports may be public.
		if !hasToken(r, sb) {
			return &refusal{status: http.StatusForbidden, id: to.id,
				message: "The browser is private: the header x-access-token is missing or wrong"}
		}
		return nil
	}
	if sb.TrafficToken == "" {
		return nil
	}
	// The comparison takes constant time, so that the token cannot be guessed byte by byte.
	got := []byte(r.Header.Get(TrafficHeader))
	if subtle.ConstantTimeCompare(got, []byte(sb.TrafficToken)) != 1 {
		return &refusal{status: http.StatusForbidden, id: to.id,
			message: "The sandbox's ports are private: the header e2b-traffic-access-token is missing or wrong"}
	}
	return nil
}

// serve forwards one request, and reports whether it was answered. When the sandbox ends, the
// request's context ends, which closes both directions.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, t *trip) (served bool) {
	ctx, cancel := context.WithCancelCause(context.WithValue(t.traceConnection(r), tripKey{}, t))
	defer cancel(nil)
	rc := http.NewResponseController(w)
	body := uploadOf(r)
	stopWatching := interrupt.When(t.back.ctx, func() {
		cancel(errGone)
		body.interrupt(rc)
	})
	defer stopWatching()
	// A program inside may answer before it has read the whole request. Without full duplex the
	// server would first read the whole request. HTTP/2 always is full duplex.
	if err := rc.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		p.Log.Debug("full duplex refused", "err", err)
	}
	defer abortConnection(t.back, w, r)
	in := r.WithContext(ctx)
	if r.Body != http.NoBody {
		in.Body = body
	}
	out := &hardCloser{ResponseWriter: w, back: t.back, redactor: t.redactor}
	actor := observe.TokenActor
	if p.Actor != nil {
		actor = cmp.Or(p.Actor(r), actor)
	}
	var ok bool
	t.visit, ok = p.Tap.Admit(w, in, observe.Call{
		Sandbox: t.id, Port: t.port, Actor: actor, Token: t.sb.AccessToken, Mask: t.redactor,
	})
	defer t.visit.Done()
	switch {
	case ok:
		p.forward.ServeHTTP(out, t.detach(ctx, in))
	case ctx.Err() != nil:
		p.failed(out, in, context.Cause(ctx))
	}
	if t.unsent {
		return false
	}
	redaction.Header(w.Header(), t.redactor) // trailers
	limitUnreadBody(w)
	stopWatching() // so that drop knows whether the body was interrupted
	body.drop(w)
	return true
}

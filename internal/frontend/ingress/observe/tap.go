// Package observe observes commands and file transfers of callers: it parses requests and answers
// as they pass, and writes audit entries and session recordings. It redacts all data before storing
// it. A request that the guest would run is not forwarded unless it was parsed.
package observe

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/telemetry/metrics"
)

// Deps are the dependencies of New. Audit, Recordings and Log are required.
type Deps struct {
	Audit      audit.Recorder
	Recordings *recording.Store
	Log        *slog.Logger
	// Survey writes events about changed files of a sandbox. It is called at the end of a cell of
	// the interpreter, which the engine does not see as the end of a process. Nil disables it.
	Survey func(ctx context.Context, sandbox string) error
	// Times measures commands, with the labels how and outcome. It may be nil.
	Times *metrics.Vector
}

// Tap observes requests. It is safe for concurrent use.
type Tap struct {
	Deps
	decoder http.Handler
	surveys surveys

	mu      sync.Mutex
	running map[string]map[*command]struct{} // by sandbox
	idle    chan struct{}                    // unless nil, closed when no command runs
	denied  map[string]*refusedRequests      // by sandbox, for the last minute
}

// New returns a Tap. Close ends it.
func New(d Deps) (*Tap, error) {
	if d.Audit == nil || d.Recordings == nil || d.Log == nil {
		return nil, errors.New("tap: a dependency is missing")
	}
	t := &Tap{Deps: d, running: map[string]map[*command]struct{}{}, denied: map[string]*refusedRequests{}}
	t.decoder = newDecoder()
	t.surveys.start(t)
	return t, nil
}

// closeTimeout bounds how long Close waits for the entries of commands whose streams were closed.
const closeTimeout = 2 * time.Second

// Close waits for the ends of visits and for background work. The streams of commands must be
// closed before.
func (t *Tap) Close() {
	t.mu.Lock()
	if len(t.running) > 0 {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	if idle != nil {
		limit := time.NewTimer(closeTimeout)
		defer limit.Stop()
		select {
		case <-idle:
		case <-limit.C:
		}
	}
	t.surveys.close()
	t.writeAllRefused()
}

// Ways to start a command.
const (
	HowStart    = "start"    // over the process service
	HowTerminal = "terminal" // the same, on a terminal
	HowConnect  = "connect"  // a caller attached to a running command
	HowExec     = "exec"     // by the /v1 API
	HowCell     = "cell"     // code for the interpreter
)

// Call is the target of a request, and its caller.
type Call struct {
	Sandbox string
	Port    int
	Actor   string // as in the audit log
	How     string // HowStart if empty
	// Token is the token that the sandbox requires. A request with another token runs nothing, and
	// its entry states that it was refused.
	Token string
	Mask  *sandbox.Redactor

	authorized bool // the request has the token
	// parent is the span of the request.
	parent trace.Span
}

// TokenActor is the actor of a request with a sandbox's token and no other identity.
const TokenActor = "token"

const tokenHeader = "X-Access-Token"

// hasToken reports whether a request has the sandbox's token. The comparison takes constant time,
// so that the token cannot be guessed byte by byte.
func (c Call) hasToken(r *http.Request) bool {
	return c.Token != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(c.Token)) == 1
}

// Visit is one observed request. A nil Visit is not observed.
type Visit struct {
	answer   func(*http.Response) error
	done     func()
	once     sync.Once
	detached *detachedCommand // set if the command continues without its client
}

// Answer observes an answer, which must be redacted already. After an error the answer must not be
// passed on.
func (v *Visit) Answer(res *http.Response) error {
	if v == nil {
		return nil
	}
	return v.answer(res)
}

// Done must be called at the end of the request, with an answer or without.
func (v *Visit) Done() {
	if v != nil {
		v.once.Do(v.done)
	}
}

// Admit examines a request before it is forwarded, and may replace its body. If ok is false, the
// request has been answered, unless its context has ended. A nil Tap examines nothing.
func (t *Tap) Admit(w http.ResponseWriter, r *http.Request, c Call) (v *Visit, ok bool) {
	if t == nil {
		return nil, true
	}
	v, no := t.visit(r, c)
	if no != nil && r.Context().Err() == nil {
		no.write(w)
	}
	return v, no == nil
}

// processPath is the service whose calls are parsed.
const processPath = "/process.Process/"

// visit determines the kind of a request. It compares paths as the most lenient reader would, so
// that nothing runs unparsed.
func (t *Tap) visit(r *http.Request, c Call) (*Visit, *refusal) {
	if c.Port != guestboot.Port && c.Port != guestboot.InterpreterPort {
		return nil, nil // other programs, with checks of their own
	}
	where := path.Clean("/" + r.URL.Path)
	c.authorized, c.parent = c.hasToken(r), trace.SpanFromContext(r.Context())
	v, no := t.observe(r, c, where)
	if no == nil && !c.authorized {
		v = t.recordUnauthorized(r, c, where, v)
	}
	return v, no
}

func (t *Tap) observe(r *http.Request, c Call, where string) (*Visit, *refusal) {
	switch {
	case c.Port == guestboot.Port && where == "/files":
		return t.file(r, c)
	case c.Port == guestboot.Port && where == copyPath && (r.Method == http.MethodGet || r.Method == http.MethodPost):
		if !c.removeWrongToken(r) {
			return t.copies(r, c)
		}
	case r.Method != http.MethodPost:
		return nil, nil // neither server runs anything for another method
	case c.Port == guestboot.Port && (where == processPath+"Start" || where == processPath+"Connect"):
		if !c.removeWrongToken(r) {
			return t.call(r, c, where)
		}
	case c.Port == guestboot.Port && (where == processPath+"Update" || where == processPath+"SendSignal"):
		if !c.removeWrongToken(r) {
			t.observeAction(r, c, where)
		}
	case c.Port == guestboot.Port && changesFiles(where):
		if !c.removeWrongToken(r) {
			return t.observeChange(r, c, where)
		}
	case c.Port == guestboot.Port && where == composePath:
		if !c.removeWrongToken(r) {
			return t.compose(r, c)
		}
	case c.Port == guestboot.InterpreterPort && where == "/execute":
		if !c.removeWrongToken(r) {
			return t.cell(r, c)
		}
	}
	return nil, nil
}

// removeWrongToken removes the token of an unauthorized request, so that the server inside refuses
// the request with its own error. It reports whether the request is unauthorized.
func (c Call) removeWrongToken(r *http.Request) bool {
	if c.authorized {
		return false
	}
	r.Header.Del(tokenHeader)
	return true
}

// Transport observes all requests to one port of a sandbox. A nil Tap observes none.
func (t *Tap) Transport(base http.RoundTripper, c Call) http.RoundTripper {
	if t == nil {
		return base
	}
	return transport{t, base, c}
}

type transport struct {
	tap  *Tap
	base http.RoundTripper
	call Call
}

// RoundTrip implements http.RoundTripper.
func (tr transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	v, no := tr.tap.visit(r, tr.call)
	if no != nil {
		return nil, errors.Join(no.err, closeBody(r))
	}
	res, err := tr.base.RoundTrip(r)
	if err == nil {
		if err = v.Answer(res); err != nil {
			err = errors.Join(err, res.Body.Close())
		}
	}
	if err != nil {
		v.Done()
		return nil, err
	}
	if v != nil {
		res.Body = &visitBody{res.Body, v}
	}
	return res, nil
}

func closeBody(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

// note writes an entry about an action that can no longer be undone.
func (t *Tap) note(d audit.Draft) {
	if err := t.Audit.Note(d); err != nil {
		t.Log.Error("entry not recorded", "sandbox", d.Sandbox, "kind", string(d.Kind), "err", err)
	}
}

// unrecorded is the error for an action whose audit entry was refused.
func unrecorded(err error) *refusal {
	if fault.KindOf(err) == fault.Internal {
		err = fault.Wrap(err, fault.Unavailable, "record_unavailable", "the audit log cannot be written, so nothing was run")
	}
	return refuse(http.StatusServiceUnavailable, err)
}

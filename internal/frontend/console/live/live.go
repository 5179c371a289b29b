// Package live serves the live events of the console's pages: one stream of events per page, with
// the fleet, resource use, approval requests and audit entries. One collector serves all streams,
// and runs only while there are streams.
package live

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/console/session"
	v1 "github.com/crannog/crannog/internal/frontend/v1"
	"github.com/crannog/crannog/internal/sandbox"
)

// Sandboxes lists sandboxes; sandbox.Service implements it.
type Sandboxes interface {
	List(ctx context.Context, caller sandbox.Principal, f sandbox.Filter) (sandbox.Page, error)
	Get(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
}

// Approvals lists and follows approval requests; approval.Service implements it.
type Approvals interface {
	List(ctx context.Context, caller approval.Caller, q approval.Query) ([]approval.Approval, error)
	Watch(ctx context.Context, caller approval.Caller, q approval.Query, after int64, each func(approval.Event) error) error
}

// AuditLog reads audit entries; audit.Log implements it.
type AuditLog interface {
	Read(ctx context.Context, f audit.Filter, follow bool, yield func(audit.Entry) error) error
}

// Meter measures running sandboxes; lifecycle.Service implements it.
type Meter interface {
	Usage(ctx context.Context, id string) (engine.Usage, error)
}

// Deps are the dependencies of New. Sandboxes, Approvals, Audit and Log are required.
type Deps struct {
	Sandboxes Sandboxes
	Approvals Approvals
	Audit     AuditLog
	// Meter measures sandboxes; nil shows no measurements.
	Meter   Meter
	Log     *slog.Logger
	Version string
	Started time.Time // of the server
	// Heartbeat is how often a silent stream sends a heartbeat; zero means every 15 seconds.
	Heartbeat time.Duration
}

// Limits of streams. Each uses a connection and a little memory.
const (
	maxStreams           = 256
	maxStreamsPerSession = 32 // streams of one session
)

var _ session.Handler = (*Live)(nil)

// Path is where a stream is opened; PUT on the stream's name below it changes its topics.
const Path = "/console/api/events"

// everyone is the collector's principal. Its data is shown only to sessions, and these may see all
// sandboxes.
var everyone = sandbox.Principal{Local: true}

// Live serves streams. It is safe for concurrent use.
type Live struct {
	deps Deps

	joining sync.Mutex // held while the collector starts or ends
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	streams   map[string]*stream
	rows      *rowTable
	approvals *approvalList
	lines     *lines
	meters    *meters
}

// New returns a Live without streams. Close ends it.
func New(d Deps) (*Live, error) {
	if d.Sandboxes == nil || d.Approvals == nil || d.Audit == nil || d.Log == nil {
		return nil, errors.New("console streams: a dependency is missing")
	}
	return &Live{
		deps: d, streams: map[string]*stream{},
		rows: newRowTable(), approvals: newApprovalList(), lines: newLines(), meters: newMeters(),
	}, nil
}

// ServeSession opens a stream, which lasts until the page or the session ends, or changes the
// topics of an existing one.
func (l *Live) ServeSession(w http.ResponseWriter, r *http.Request, caller session.Session) {
	id, one := strings.CutPrefix(r.URL.Path, Path+"/")
	var err error
	switch {
	case caller.ID == "":
		err = fault.New(fault.Unauthenticated, "unauthenticated", "a stream belongs to a session")
	case r.URL.Path == Path && r.Method == http.MethodGet:
		err = l.stream(w, r, caller.ID)
	case one && r.Method == http.MethodPut:
		err = l.change(w, r, caller.ID, id)
	default:
		err = fault.New(fault.NotFound, "route_not_found", "follow events with GET "+Path+", and change the topics with PUT")
	}
	if err != nil {
		v1.WriteProblem(w, err)
	}
}

// Close closes all streams, and accepts no more.
func (l *Live) Close() {
	l.mu.Lock()
	l.closed = true
	for _, s := range l.streams {
		s.cancel()
	}
	l.mu.Unlock()
	// The collector ends when the last stream has left.
	l.joining.Lock()
	defer l.joining.Unlock()
	l.halt()
}

// join adds a stream, and starts the collector with the first one.
func (l *Live) join(s *stream) error {
	l.joining.Lock()
	defer l.joining.Unlock()
	l.mu.Lock()
	mine := 0
	for _, other := range l.streams {
		if other.session == s.session {
			mine++
		}
	}
	switch {
	case l.closed:
		l.mu.Unlock()
		return fault.New(fault.Unavailable, "shutting_down", "the server is shutting down")
	case len(l.streams) >= maxStreams || mine >= maxStreamsPerSession:
		l.mu.Unlock()
		return fault.New(fault.Exhausted, "too_many_streams", "too many pages are open").
			WithHint("close one")
	}
	s.id = rand.Text()
	l.streams[s.id] = s
	l.mu.Unlock()
	if l.stop != nil {
		return nil
	}
	return l.start(s.ctx)
}

// leave removes a stream, and ends the collector with the last one.
func (l *Live) leave(s *stream) {
	l.joining.Lock()
	defer l.joining.Unlock()
	l.mu.Lock()
	delete(l.streams, s.id)
	left := len(l.streams)
	l.mu.Unlock()
	if left == 0 {
		l.halt()
	}
}

// start starts the collector. The caller holds l.joining.
func (l *Live) start(ctx context.Context) error {
	l.mu.Lock()
	l.approvals.ready = false
	clear(l.meters.last)
	l.mu.Unlock()
	if err := l.readBack(ctx); err != nil {
		l.deps.Log.Warn("console: the audit log cannot be read", "err", err)
	}
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.work.Go(func() { l.follow(ctx) })
	l.work.Go(func() { l.watchApprovals(ctx) })
	l.work.Go(func() { l.tick(ctx) })
	return nil
}

// halt ends the collector. The caller holds l.joining.
func (l *Live) halt() {
	if l.stop == nil {
		return
	}
	l.stop()
	l.work.Wait()
	l.stop = nil
}

// wake makes all streams check for new data. The caller holds l.mu.
func (l *Live) wake() {
	for _, s := range l.streams {
		s.notify()
	}
}

// tickInterval is how often the fleet is read and sandboxes are measured.
const tickInterval = time.Second

// tick polls data that has no change events of its own, once per second.
func (l *Live) tick(ctx context.Context) {
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		l.refresh(ctx)
		l.measure(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// pause waits before a retry.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

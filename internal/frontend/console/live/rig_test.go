package live_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/frontend/console/live"
	"github.com/crannog/crannog/internal/frontend/console/session"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// sandboxes contains the sandboxes that the service would list.
type sandboxes struct {
	mu    sync.Mutex
	rows  []sandbox.Sandbox // by start
	lists atomic.Int64
}

func (b *sandboxes) put(sb sandbox.Sandbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.rows {
		if b.rows[i].ID == sb.ID {
			b.rows[i] = sb
			return
		}
	}
	b.rows = append(b.rows, sb)
}

func (b *sandboxes) remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = slices.DeleteFunc(b.rows, func(sb sandbox.Sandbox) bool { return sb.ID == id })
}

func (b *sandboxes) List(_ context.Context, _ sandbox.Principal, f sandbox.Filter) (sandbox.Page, error) {
	b.lists.Add(1)
	b.mu.Lock()
	defer b.mu.Unlock()
	var p sandbox.Page
	for _, sb := range b.rows {
		if !slices.Contains(f.States, sb.State) {
			continue
		}
		if !f.AfterTime.IsZero() && !sb.StartedAt.After(f.AfterTime) {
			continue
		}
		if len(p.Sandboxes) == f.Limit {
			p.More = true
			break
		}
		p.Sandboxes = append(p.Sandboxes, sb)
	}
	return p, nil
}

func (b *sandboxes) Get(_ context.Context, _ sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sb := range b.rows {
		if sb.ID == ref {
			return sb, nil
		}
	}
	return sandbox.Sandbox{}, sandbox.Unknown(ref)
}

// approvalQueue provides the approval requests and events of a test.
type approvalQueue struct {
	mu   sync.Mutex
	open []approval.Approval
	next chan approval.Event
}

func (q *approvalQueue) List(context.Context, approval.Caller, approval.Query) ([]approval.Approval, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.open), nil
}

func (q *approvalQueue) Watch(ctx context.Context, _ approval.Caller, _ approval.Query, _ int64, each func(approval.Event) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-q.next:
			if err := each(e); err != nil {
				return err
			}
		}
	}
}

// meter is an engine whose sandboxes use a quarter of a processor.
type meter struct{ started time.Time }

func (m meter) Usage(context.Context, string) (engine.Usage, error) {
	now := time.Now()
	return engine.Usage{At: now, CPUTime: now.Sub(m.started) / 4, MemoryBytes: 7 << 20}, nil
}

// rig is a Live on a test server, with its dependencies.
type rig struct {
	t         testing.TB
	live      *live.Live
	sandboxes *sandboxes
	approvals *approvalQueue
	log       *audit.Log
	srv       *httptest.Server
}

func openRecord(t testing.TB, dir string) *audit.Log {
	t.Helper()
	l, err := audit.Open(audit.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newRig(t testing.TB) *rig {
	t.Helper()
	return newRigOn(t, openRecord(t, filepath.Join(t.TempDir(), "record")), &sandboxes{})
}

func newRigOn(t testing.TB, log *audit.Log, b *sandboxes, change ...func(*live.Deps)) *rig {
	t.Helper()
	r := &rig{t: t, sandboxes: b, approvals: &approvalQueue{next: make(chan approval.Event)}, log: log}
	deps := live.Deps{
		Sandboxes: b, Approvals: r.approvals, Audit: log, Meter: meter{time.Now()}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Version: "test", Started: time.Now(),
	}
	for _, f := range change {
		f(&deps)
	}
	var err error
	r.live, err = live.New(deps)
	if err != nil {
		t.Fatal(err)
	}
	r.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.live.ServeSession(w, req, session.Session{ID: req.Header.Get("Session"), Scope: session.Viewer})
	}))
	t.Cleanup(r.close)
	return r
}

// close ends the streams and the server. It may be called twice.
func (r *rig) close() {
	r.live.Close()
	r.srv.CloseClientConnections()
	r.srv.Close()
	if err := r.log.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) note(d audit.Draft) {
	r.t.Helper()
	if err := r.log.Append(context.Background(), d); err != nil {
		r.t.Fatal(err)
	}
}

// event is one event of a stream.
type event struct{ name, id, data string }

// page is a client that reads one stream.
type page struct {
	t      testing.TB
	res    *http.Response
	cancel context.CancelFunc
	in     *bufio.Reader
	stream string
	lastID string
}

// open opens a stream and reads its hello.
func (r *rig) open(query, lastID string) *page {
	r.t.Helper()
	p := r.subscribe("alice", query, lastID)
	if p.res.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(p.res.Body)
		r.t.Fatalf("%s: %s", p.res.Status, body)
	}
	e := p.next()
	if e.name != "hello" {
		r.t.Fatalf("the first event is %+v", e)
	}
	var h struct{ Stream string }
	if err := json.Unmarshal([]byte(e.data), &h); err != nil || h.Stream == "" {
		r.t.Fatalf("hello %q, %v", e.data, err)
	}
	p.stream = h.Stream
	return p
}

// subscribe requests a stream as a session, without checking the response.
func (r *rig) subscribe(session, query, lastID string) *page {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hosttest.Patience(hosttest.Hang))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.srv.URL+live.Path+"?"+query, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Session", session)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := r.srv.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	p := &page{t: r.t, res: res, cancel: cancel, in: bufio.NewReader(res.Body)}
	r.t.Cleanup(p.close)
	return p
}

func (p *page) close() { p.cancel(); p.res.Body.Close() }

// next reads one event that is not a heartbeat.
func (p *page) next() event {
	p.t.Helper()
	for {
		e, err := p.read()
		if err != nil {
			p.t.Fatalf("the stream ended: %v", err)
		}
		if e.name != "beat" {
			return e
		}
	}
}

func (p *page) read() (event, error) {
	var e event
	for {
		line, err := p.in.ReadString('\n')
		if err != nil {
			return e, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && e.data != "":
			return e, nil
		case line == "":
			e = event{}
		case name == "event":
			e.name = value
		case name == "data":
			e.data += value
		case name == "id":
			e.id, p.lastID = value, value
		}
	}
}

// until reads events until one has the name and ok accepts its data.
func (p *page) until(name string, ok func(data []byte) bool) event {
	p.t.Helper()
	for {
		if e := p.next(); e.name == name && ok([]byte(e.data)) {
			return e
		}
	}
}

func containing(text string) func([]byte) bool {
	return func(data []byte) bool { return bytes.Contains(data, []byte(text)) }
}

func (r *rig) change(session, stream, body string) int {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPut, r.srv.URL+live.Path+"/"+stream, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Session", session)
	res, err := r.srv.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

func fakeSandbox(id string) sandbox.Sandbox {
	return sandbox.Sandbox{
		ID: id, State: sandbox.Running, StartedAt: time.Now(), Template: "base", Engine: "fake", PolicyLevel: "standard",
		Boundary: engine.NoBoundary, Limits: sandbox.Limits{Limits: engine.Limits{MemoryBytes: 512 << 20}},
	}
}

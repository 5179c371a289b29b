package warmpool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/admission"
	"github.com/crannog/crannog/internal/sandbox/demand"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// instances creates sandboxes on the fake engine, without rows or audit entries.
type instances struct {
	engine *fake.Engine
	access *access.Service

	mu                           sync.Mutex
	made                         int
	discarded, owned             []string
	adopt, record, acquire, gone error // errors to return; gone simulates a missing row
}

func (i *instances) set(do func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	do()
}

func (i *instances) plan() (warmpool.Plan, error) {
	none := sandbox.Access{Net: sandbox.NetNone}.Resolved()
	p, err := i.access.Compile(none)
	if err != nil {
		return warmpool.Plan{}, err
	}
	info := i.engine.Info()
	r := sandbox.Row{Sandbox: sandbox.Sandbox{
		ID: "asked", TemplateID: "t", Template: "base", State: sandbox.Creating, Access: none, PolicyLevel: p.Level(), PolicyDigest: p.Digest(),
		Engine: info.Name, Boundary: info.Boundary, Enforced: info.Enforces,
	}}
	t := sandbox.Template{ID: "t", Name: "base", Image: engine.ViewOf("/", "")}
	spec, config, _, err := rootfs.Compose(&r, t, p, info)
	return warmpool.Plan{Row: r, Template: t, Policy: p, Spec: spec, Config: config}, err
}

func (i *instances) Plan(context.Context, sandbox.CreateRequest) (warmpool.Plan, error) {
	return i.plan()
}

func (i *instances) Reserve() sandbox.Row {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.made++
	return sandbox.Row{ControlToken: "secret", Sandbox: sandbox.Sandbox{ID: fmt.Sprintf("i%d", i.made)}}
}

func (i *instances) Boot(ctx context.Context, b warmpool.Boot) (map[string]string, error) {
	if err := b.Launch(ctx, b.Spec, b.Config); err != nil {
		return nil, err
	}
	return nil, b.Ready(ctx)
}

func (i *instances) Adopt(ctx context.Context, r sandbox.Row, handOver func(context.Context) error) (sandbox.Sandbox, error) {
	i.mu.Lock()
	failed := i.adopt
	i.mu.Unlock()
	if failed != nil {
		return sandbox.Sandbox{}, failed
	}
	err := handOver(ctx)
	if err == nil {
		i.set(func() { i.owned = append(i.owned, r.ID) })
	}
	return r.Sandbox, err
}

func (i *instances) Record(context.Context, sandbox.Row) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.record
}

func (i *instances) Discard(ctx context.Context, id string) error {
	i.set(func() { i.discarded = append(i.discarded, id) })
	return i.engine.Remove(ctx, id)
}

func (i *instances) Busy() bool { return false }

func (i *instances) Find(context.Context, string, sandbox.Principal) ([]sandbox.Row, error) {
	return nil, nil
}

func (i *instances) Acquire(context.Context, sandbox.Row, int) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.acquire == nil && i.gone == nil, i.acquire
}

func (i *instances) isDiscarded(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Contains(i.discarded, id)
}

// start returns a pool that keeps one sandbox ready.
func start(t *testing.T) (*warmpool.Pool, *instances) {
	t.Helper()
	e, err := fake.New(fake.Options{Dir: t.TempDir(), Guest: serve})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	i := &instances{engine: e, access: access.New(access.Deps{Settings: sandbox.Settings{AnyBoundary: true}.WithDefaults(), Log: log, Known: func(string) (string, bool) { return "", true }})}
	queue := admission.New(admission.Options{Log: log})
	p := warmpool.New(warmpool.Deps{Instances: i, Engines: fake.Registry(e), Access: i.access, Rows: i, Admission: queue, MaxLive: 10, Log: log}, warmpool.Options{
		Defaults: []sandbox.CreateRequest{{Template: "base"}},
		Memory:   func() (demand.Memory, error) { return demand.Memory{Total: 40 << 30, Available: 20 << 30}, nil },
	})
	p.Start()
	t.Cleanup(func() {
		p.Close()
		left, err := e.List(context.Background())
		if err != nil || slices.ContainsFunc(left, func(s engine.Status) bool { return !slices.Contains(i.owned, s.ID) }) {
			t.Errorf("sandboxes remain after Close: %v, %v", left, err)
		}
		e.Close()
	})
	awaitWarm(t, p)
	return p, i
}

// serve is the control service of a guest that accepts every claim.
func serve(spec engine.Spec) (map[int]http.Handler, func(), error) {
	var boot guest.Config
	if err := json.Unmarshal(spec.Boot.Config, &boot); err != nil {
		return nil, nil, err
	}
	return map[int]http.Handler{guestboot.Port: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(guest.ControlHeader) != boot.ControlToken {
			http.Error(w, "another token", http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})}, nil, nil
}

// awaitWarm waits until the pool has one warm sandbox.
func awaitWarm(t *testing.T, p *warmpool.Pool) {
	t.Helper()
	hosttest.Eventually(t, "the pool has one warm sandbox", func() bool { return countWarm(p) == 1 })
}

// countWarm returns the number of warm sandboxes.
func countWarm(p *warmpool.Pool) (n int) {
	status, _ := p.Status()
	for _, k := range status.Kinds {
		n += k.Waiting
	}
	return n
}

// acquire requests a sandbox of the pool's default kind.
func acquire(t *testing.T, p *warmpool.Pool, i *instances) (sandbox.Sandbox, bool, error) {
	t.Helper()
	requested, err := i.plan()
	if err != nil {
		t.Fatal(err)
	}
	return p.Acquire(t.Context(), requested)
}

func TestAcquireHandsOver(t *testing.T) {
	p, i := start(t)
	got, acquired, err := acquire(t, p, i)
	if err != nil || !acquired || got.ID != "i1" {
		t.Errorf("acquire: got sandbox %v, %t, %v; want i1", got.ID, acquired, err)
	}
	status, _ := p.Status()
	if len(status.Kinds) != 1 || status.Kinds[0].Claimed != 1 || status.Kinds[0].Missed != 0 {
		t.Errorf("status: %+v", status)
	}
	p.Wake() // the request is done
	awaitWarm(t, p)
	p.Close()
	if i.isDiscarded("i1") {
		t.Error("a caller's sandbox was discarded")
	}
}

// TestFailedAdoptionKeepsSandbox checks that a request which ends before it has reached the sandbox
// leaves the sandbox in the pool.
func TestFailedAdoptionKeepsSandbox(t *testing.T) {
	p, i := start(t)
	closing := fault.New(fault.Unavailable, "shutting_down", "closing")
	i.set(func() { i.adopt = closing })
	if _, acquired, err := acquire(t, p, i); !acquired || !errors.Is(err, closing) {
		t.Errorf("acquire while the server closes: got %t, %v", acquired, err)
	}
	if countWarm(p) != 1 || i.isDiscarded("i1") {
		t.Error("the sandbox is no longer in the pool")
	}
	i.set(func() { i.adopt = nil })
	if got, acquired, err := acquire(t, p, i); err != nil || !acquired || got.ID != "i1" {
		t.Errorf("acquire: got sandbox %v, %t, %v; want i1", got.ID, acquired, err)
	}
}

// TestReachedSandboxIsDiscarded checks that a warm sandbox which a failed request has reached is
// not handed to another request. The caller gets an error of the request, but not one of the pool.
func TestReachedSandboxIsDiscarded(t *testing.T) {
	refused := fault.New(fault.Unavailable, "audit_log_full", "no entry")
	many := fault.New(fault.Exhausted, sandbox.CodeTooMany, "too many")
	for name, test := range map[string]struct {
		fail     func(*instances)
		acquired bool
		want     error
	}{
		"the entry is refused":  {func(i *instances) { i.record = refused }, true, refused},
		"too many sandboxes":    {func(i *instances) { i.acquire = many }, true, many},
		"the row is gone":       {func(i *instances) { i.gone = errors.New("gone") }, false, nil},
		"the store is not read": {func(i *instances) { i.acquire = errors.New("disk") }, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, i := start(t)
			i.set(func() { test.fail(i) })
			if _, acquired, err := acquire(t, p, i); acquired != test.acquired || !errors.Is(err, test.want) {
				t.Errorf("acquire: got %t, %v; want %t, %v", acquired, err, test.acquired, test.want)
			}
			hosttest.Eventually(t, "it is discarded", func() bool { return i.isDiscarded("i1") })
		})
	}
}

// TestOtherKindCountsAsMissed checks that a request for another kind gets no sandbox and is
// counted.
func TestOtherKindCountsAsMissed(t *testing.T) {
	p, i := start(t)
	requested, err := i.plan()
	if err != nil {
		t.Fatal(err)
	}
	requested.Config.NoRoot = !requested.Config.NoRoot
	if _, acquired, err := p.Acquire(t.Context(), requested); acquired || err != nil {
		t.Errorf("acquire of another kind: got %t, %v; want false", acquired, err)
	}
	status, _ := p.Status()
	missed := int64(0)
	for _, k := range status.Kinds {
		missed += k.Missed
	}
	if missed != 1 || countWarm(p) < 1 {
		t.Errorf("status: %+v", status)
	}
}

func TestNilPoolDoesNothing(t *testing.T) {
	var p *warmpool.Pool
	p.Wake()
	p.DropAttached()
	p.Saved(sandbox.Row{})
	p.Close()
	_, acquired, err := p.Acquire(t.Context(), warmpool.Plan{Policy: (*policy.Policy)(nil)})
	if _, ok := p.Status(); ok || acquired || err != nil {
		t.Errorf("nil pool: in use %t, acquired %t, %v", ok, acquired, err)
	}
}

package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/audited"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/store"
)

var (
	local = sandbox.Principal{Local: true}
	alice = sandbox.Principal{KeyID: "alice"}
	bob   = sandbox.Principal{KeyID: "bob"}
)

const templateID = "base0000000000000000"

// templates holds one template, under two names and its ID.
type templates struct{}

func (templates) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if !slices.Contains([]string{"base", "code-interpreter-v1", templateID}, ref.Name) || ref.Namespace != "" {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	if ref.Tag != sandbox.DefaultTag {
		return sandbox.Template{}, sandbox.TagUnknown(ref)
	}
	return sandbox.Template{ID: templateID, Name: ref.Name, Image: engine.ViewOf("/", "")}, nil
}

// rig is a Service on a real store and the fake engine.
type rig struct {
	*audited.Service
	t      *testing.T
	dir    string
	store  *store.Store
	engine *fake.Engine
	images *fakeImages
	record *audittest.Log // persistent, like files on disk
	format string         // directory of saved states; "" is the fake's own

	mu            sync.Mutex
	ends          map[string]time.Time // ends that guests were sent
	boots         []guest.Config       // configurations of booted guests
	refuseUpdates bool                 // guests refuse updates
	// files, if set, is what guests list and pack for any directory.
	files http.Handler
	fault func(fake.Step, string) error
}

type option func(*lifecycle.Deps)

func newRig(t *testing.T, options ...option) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), ends: make(map[string]time.Time)}
	r.open(options...)
	t.Cleanup(func() {
		r.close()
		r.engine.Close()
	})
	return r
}

// open opens the Service like a process that starts.
func (r *rig) open(options ...option) {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(r.t.Context(), r.dir); err != nil {
		r.t.Fatal(err)
	}
	r.engine, err = fake.New(fake.Options{Dir: filepath.Join(r.dir, "run"), Guest: r.guest, Fault: r.fail, Enforces: enforced, Shows: enforced, Format: r.format})
	if err != nil {
		r.t.Fatal(err)
	}
	if r.images, err = newFakeImages(filepath.Join(r.dir, "states")); err != nil {
		r.t.Fatal(err)
	}
	if r.record == nil {
		r.record = &audittest.Log{}
	}
	deps := lifecycle.Deps{
		Audit: auditlog.New(r.record, slog.New(slog.DiscardHandler)),
		Store: r.store, Engines: fake.Registry(r.engine), Templates: templates{}, Images: r.images,
		Log:      slog.New(slog.NewTextHandler(r.t.Output(), nil)),
		Settings: sandbox.Settings{AnyBoundary: true}, // the fake has none
	}
	for _, o := range options {
		o(&deps)
	}
	if r.Service, err = audited.NewService(deps); err != nil {
		r.t.Fatal(err)
	}
}

// close closes the Service like a process that stops; calling it twice does no harm.
func (r *rig) close() {
	r.t.Helper()
	if r.Service == nil {
		return
	}
	if err := r.Close(context.Background()); err != nil {
		r.t.Error(err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Error(err)
	}
	r.Service = nil
}

// guestFilePaths are the paths of the guest that a test answers with files.
var guestFilePaths = []string{guest.PathTree, guest.PathPack, guest.PathCensus, guest.PathSignal}

// instanceHeader tells files which instance was asked.
const instanceHeader = "Test-Instance"

func (r *rig) guest(spec engine.Spec) (map[int]http.Handler, func(), error) {
	var config guest.Config
	if err := json.Unmarshal(spec.Boot.Config, &config); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	r.boots = append(r.boots, config)
	r.mu.Unlock()
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(spec.ID)) })
	control := fake.Control(spec, hello, func(u guest.Update) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ends[spec.ID] = *u.EndAt
	})
	return map[int]http.Handler{8080: hello, guestboot.Port: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		refuses := r.refuseUpdates && req.URL.Path == guest.PathUpdate
		files := r.files
		r.mu.Unlock()
		if files != nil && slices.Contains(guestFilePaths, req.URL.Path) && req.Header.Get(guest.ControlHeader) == config.ControlToken {
			req.Header.Set(instanceHeader, spec.ID)
			files.ServeHTTP(w, req)
			return
		}
		if refuses {
			http.Error(w, "the guest refuses updates", http.StatusTeapot)
			return
		}
		control.ServeHTTP(w, req)
	})}, nil, nil
}

func (r *rig) fail(step fake.Step, id string) error {
	r.mu.Lock()
	f := r.fault
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(step, id)
}

func (r *rig) setFault(f func(fake.Step, string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

func (r *rig) create(caller sandbox.Principal, change ...func(*sandbox.CreateRequest)) sandbox.Sandbox {
	r.t.Helper()
	req := sandbox.CreateRequest{Template: "base"}
	for _, c := range change {
		c(&req)
	}
	sb, err := r.Create(r.t.Context(), caller, req)
	if err != nil {
		r.t.Fatal(err)
	}
	return sb
}

// wantNothingLeft fails the test unless engine, directory and live rows are empty.
func (r *rig) wantNothingLeft() {
	r.t.Helper()
	held, err := r.engine.List(r.t.Context())
	if err != nil || len(held) != 0 {
		r.t.Errorf("instances remain: %v, %v", held, err)
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, "run"))
	if err != nil || len(entries) != 0 {
		r.t.Errorf("files remain in the directory: %v, %v", entries, err)
	}
	rows, err := r.store.List(r.t.Context(), sandbox.Query{AllOwners: true, Filter: sandbox.Filter{
		States: []sandbox.State{sandbox.Creating, sandbox.Running, sandbox.Stopping},
	}})
	if err != nil || len(rows) != 0 {
		r.t.Errorf("live rows: %v, %v", rows, err)
	}
}

func wantKind(t *testing.T, err error, kind fault.Kind, code string) {
	t.Helper()
	if err == nil || fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Errorf("got %v (%s, %s), want %s, %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
}

func TestSandboxLifecycle(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	sb := r.create(alice, func(c *sandbox.CreateRequest) {
		c.Name, c.Timeout = "web", time.Minute
		c.Metadata = map[string]string{"a b": "x&y"}
	})
	if sb.State != sandbox.Running || sb.EndAt.Sub(sb.StartedAt) != time.Minute || sb.AccessToken == "" || sb.TrafficToken != "" {
		t.Errorf("created %+v", sb)
	}
	for _, ref := range []string{sb.ID, "web"} {
		got, err := r.Get(ctx, alice, ref)
		if err != nil || got.ID != sb.ID || !got.EndAt.Equal(sb.EndAt) || got.AccessToken != sb.AccessToken {
			t.Errorf("get %s: %+v, %v", ref, got, err)
		}
	}
	if got, err := r.Get(ctx, local, sb.ID[:6]); err != nil || got.ID != sb.ID {
		t.Errorf("get by prefix: %+v, %v", got, err)
	}
	if _, ok := r.Live(sb.ID); !ok {
		t.Error("not live")
	}
	gone := r.Gone(sb.ID)
	page, err := r.List(ctx, alice, sandbox.Filter{Metadata: map[string]string{"a b": "x&y"}})
	if err != nil || len(page.Sandboxes) != 1 || page.Running != 1 || page.More {
		t.Errorf("list: %+v, %v", page, err)
	}
	if err := r.Remove(ctx, alice, sb.ID); err != nil {
		t.Error(err)
	}
	select {
	case <-gone:
	default:
		t.Error("gone is not closed")
	}
	if _, ok := r.Live(sb.ID); ok {
		t.Error("live after its removal")
	}
	got, err := r.Get(ctx, alice, sb.ID)
	if err != nil || got.State != sandbox.Stopped || got.Reason != "killed" || got.StoppedAt.IsZero() {
		t.Errorf("after removal: %+v, %v", got, err)
	}
	entries, err := r.Logs(ctx, alice, sb.ID)
	if err != nil || len(entries) != 2 || entries[1].Fields["reason"] != "killed" {
		t.Errorf("log: %+v, %v", entries, err)
	}
	if err := r.Remove(ctx, alice, sb.ID); err != nil {
		t.Errorf("removal of the row: %v", err)
	}
	_, err = r.Get(ctx, alice, sb.ID)
	wantKind(t, err, fault.NotFound, "sandbox_not_found")
	r.wantNothingLeft()
}

func TestOwnersSeeOnlyTheirSandboxes(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	aliceSandbox := r.create(alice, func(c *sandbox.CreateRequest) { c.Name = "web" })
	bobSandbox := r.create(bob, func(c *sandbox.CreateRequest) { c.Name = "web" })
	ops := map[string]func(ref string) error{
		"get":     func(ref string) error { _, err := r.Get(ctx, bob, ref); return err },
		"remove":  func(ref string) error { return r.Remove(ctx, bob, ref) },
		"forget":  func(ref string) error { return r.Forget(ctx, bob, ref) },
		"timeout": func(ref string) error { _, err := r.SetTimeout(ctx, bob, ref, 0); return err },
		"extend":  func(ref string) error { _, err := r.Extend(ctx, bob, ref, time.Hour); return err },
		"metrics": func(ref string) error { _, err := r.Metrics(ctx, bob, ref, time.Time{}, time.Time{}); return err },
		"logs":    func(ref string) error { _, err := r.Logs(ctx, bob, ref); return err },
	}
	for name, op := range ops {
		err := op(aliceSandbox.ID)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
		if want := `Sandbox "` + aliceSandbox.ID + `" doesn't exist or you don't have access to it`; fault.PublicText(err) != want {
			t.Errorf("%s: %q, want %q", name, fault.PublicText(err), want)
		}
		wantKind(t, op(bobSandbox.ID[:8]), fault.NotFound, "sandbox_not_found")
	}
	if got, err := r.Get(ctx, bob, "web"); err != nil || got.ID != bobSandbox.ID {
		t.Errorf("bob's web: %v, %v", got.ID, err)
	}
	_, err := r.Get(ctx, local, "web")
	wantKind(t, err, fault.Conflict, "sandbox_ambiguous")
	page, err := r.List(ctx, bob, sandbox.Filter{})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != bobSandbox.ID || page.Running != 1 {
		t.Errorf("bob lists %+v, %v", page, err)
	}
	page, err = r.List(ctx, local, sandbox.Filter{})
	if err != nil || len(page.Sandboxes) != 2 || page.Running != 2 {
		t.Errorf("a local caller lists %+v, %v", page, err)
	}
	_, err = r.Get(ctx, sandbox.Principal{}, aliceSandbox.ID)
	wantKind(t, err, fault.Unauthenticated, "unauthenticated")
	_, err = r.Create(ctx, bob, sandbox.CreateRequest{Template: "base", Name: "web"})
	wantKind(t, err, fault.Exists, "sandbox_name_taken")
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	r := newRig(t)
	broken := errors.New("broken on purpose")
	for _, step := range fake.Steps[:4] {
		r.setFault(func(at fake.Step, _ string) error {
			if at == step {
				return broken
			}
			return nil
		})
		_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Name: "web"})
		if !errors.Is(err, broken) || fault.PublicText(err) != "internal error" {
			t.Errorf("creation that fails at %s: got error %v", step, err)
		}
		r.wantNothingLeft()
	}
	r.setFault(nil)
	page, err := r.List(t.Context(), local, sandbox.Filter{})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("rows of failed creations: %+v, %v", page, err)
	}
	r.create(alice, func(c *sandbox.CreateRequest) { c.Name = "web" })
}

// enforced is what the engine claims to enforce: everything but inodes, like the real one.
var enforced = []engine.Limit{engine.LimitMemory, engine.LimitCPU, engine.LimitPIDs, engine.LimitDisk}

// P6: a limit that the engine cannot enforce is refused, not silently ignored.
func TestUnenforcedLimitIsRefused(t *testing.T) {
	r := newRig(t)
	_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Limits: sandbox.Limits{Limits: engine.Limits{DiskInodes: 5000}}})
	if fault.CodeOf(err) != "limit_not_enforced" || fault.KindOf(err) != fault.Unsupported || fault.HintOf(err) == "" {
		t.Errorf("limit that is not enforced: got error %v", err)
	}
}

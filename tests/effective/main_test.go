// Package effective_test gives sandboxes another instance than requested, in each way in which one
// can be created. It checks that such a sandbox is never ready, that nothing of it is left, and
// that nothing else is lost.
package effective_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/gvisor"
	"github.com/crannog/crannog/internal/host/embedded/guestbin"
	"github.com/crannog/crannog/internal/image/template"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/server/standard"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// life is the timeout of a sandbox that a failed test leaves behind.
const life = 5 * time.Hour

func TestMain(m *testing.M) {
	crannog.Main()
	os.Exit(m.Run())
}

// specChanger is an engine that changes the specifications of instances.
type specChanger struct {
	*gvisor.Engine

	mu        sync.Mutex
	change    func(*engine.Spec) error
	requested []string // IDs of all requested instances
}

// changeSpecs sets a function that changes all specifications from now on; nil ends that.
func (c *specChanger) changeSpecs(how func(*engine.Spec) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change = how
}

// requestedIDs returns the IDs of all requested instances.
func (c *specChanger) requestedIDs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requested)
}

// with passes the changed specification to a function.
func (c *specChanger) with(spec engine.Spec, do func(engine.Spec) error) error {
	c.mu.Lock()
	c.requested = append(c.requested, spec.ID)
	change := c.change
	c.mu.Unlock()
	if change == nil {
		return do(spec)
	}
	original := spec.Egress
	if err := change(&spec); err != nil {
		return err
	}
	if spec.Egress.End != original.End {
		defer spec.Egress.End.Close()
	}
	return do(spec)
}

// Create implements engine.Engine.
func (c *specChanger) Create(ctx context.Context, spec engine.Spec) error {
	return c.with(spec, func(spec engine.Spec) error { return c.Engine.Create(ctx, spec) })
}

// Restore implements engine.Checkpointer.
func (c *specChanger) Restore(ctx context.Context, spec engine.Spec, dir string) error {
	return c.with(spec, func(spec engine.Spec) error { return c.Engine.Restore(ctx, spec, dir) })
}

// Replace implements engine.Checkpointer.
func (c *specChanger) Replace(ctx context.Context, spec engine.Spec, dir string) error {
	return c.with(spec, func(spec engine.Spec) error { return c.Engine.Replace(ctx, spec, dir) })
}

// rig is the product on an engine that changes specifications.
type rig struct {
	t      *testing.T
	state  string
	engine *specChanger
	d      *server.Server
	client *crannog.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	hosttest.Need(t, hosttest.Root, hosttest.Bash)
	// A socket's path has at most 107 bytes.
	state, err := os.MkdirTemp("", "ef")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	engineSet, err := standard.Engines(standard.Options{State: state, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, state: state, engine: &specChanger{Engine: engineSet.Default().(*gvisor.Engine)}}
	guest, err := guestbin.Path(filepath.Join(state, "guest"))
	if err != nil {
		t.Fatal(err)
	}
	engines, err := engine.NewRegistry("", r.engine)
	if err != nil {
		t.Fatal(err)
	}
	r.d, err = server.Open(t.Context(), server.Options{
		StateDir: state, Log: log, Engines: engines, Templates: template.NewHost(filepath.Join(state, "templates"), guest), Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	local := r.d.Local()
	transport := &http.Transport{DialContext: local.Dial}
	if r.client, err = crannog.New(crannog.HTTP(&http.Client{Transport: transport})); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		err := errors.Join(local.Close(), r.d.Close(context.WithoutCancel(t.Context())))
		servetest.NothingLeft(t, state, r.engine.requestedIDs()...)
		if err := errors.Join(err, os.RemoveAll(state)); err != nil {
			t.Error(err)
		}
	})
	return r
}

// small are the limits of a test's sandbox.
var small = api.Limits{MemoryBytes: 512 << 20, CPUMillis: 2000, PIDs: 256, DiskBytes: 256 << 20, DiskInodes: 20_000, CommandTimeoutSeconds: 1200}

// create creates a sandbox and removes it when the test ends.
func (r *rig) create(opts ...crannog.CreateOption) (*crannog.Sandbox, error) {
	r.t.Helper()
	sb, err := r.client.Create(r.t.Context(), append([]crannog.CreateOption{crannog.Timeout(life), crannog.Limits(small)}, opts...)...)
	if err == nil {
		r.killAtEnd(sb)
	}
	return sb, err
}

// killAtEnd removes a sandbox when the test ends.
func (r *rig) killAtEnd(sb *crannog.Sandbox) {
	r.t.Cleanup(func() {
		if err := sb.Kill(context.WithoutCancel(r.t.Context())); err != nil && !errors.Is(err, crannog.ErrNotFound) {
			r.t.Error(err)
		}
	})
}

// must creates a sandbox that must be ready with successful checks.
func (r *rig) must(opts ...crannog.CreateOption) *crannog.Sandbox {
	r.t.Helper()
	sb, err := r.create(opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.requireEffective(sb)
	return sb
}

// requireEffective checks that a sandbox is ready and that all its checks succeeded.
func (r *rig) requireEffective(sb *crannog.Sandbox) {
	r.t.Helper()
	info, err := sb.Refresh(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if info.State != "running" || len(info.Effective.Checks) < 6 {
		r.t.Errorf("%s is %s with the checks %+v", info.ID, info.State, info.Effective.Checks)
	}
	for _, c := range info.Effective.Checks {
		if !c.Holds {
			r.t.Errorf("the check failed: %s", c.Check)
		}
	}
}

// requireNotEffective checks that an error names the failed check.
func (r *rig) requireNotEffective(err error, want string) {
	r.t.Helper()
	var e *crannog.Error
	if !errors.As(err, &e) || e.Code != "policy_not_effective" || !strings.Contains(e.Message, want) || e.Hint == "" {
		r.t.Errorf("got %+v, want policy_not_effective with %q", err, want)
	}
}

// ids returns the existing sandboxes, with their states.
func (r *rig) ids() map[string]string {
	r.t.Helper()
	list, err := r.client.List(r.t.Context(), crannog.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	all := map[string]string{}
	for _, sb := range list {
		all[sb.ID] = sb.State
	}
	return all
}

// requireOnly checks that nothing but the given sandboxes is left: no other row, instance, process,
// cgroup or network.
func (r *rig) requireOnly(expected ...*crannog.Sandbox) {
	r.t.Helper()
	known := map[string]bool{}
	for _, sb := range expected {
		known[sb.ID()] = true
	}
	for id, state := range r.ids() {
		if !known[id] && state != "stopped" {
			r.t.Errorf("sandbox %s is left in the state %s", id, state)
		}
	}
	instances, err := r.engine.List(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range instances {
		if !known[m.ID] {
			r.t.Errorf("the instance of %s is left", m.ID)
		}
	}
	gone := slices.DeleteFunc(r.engine.requestedIDs(), func(id string) bool { return known[id] })
	if len(expected) == 0 {
		servetest.NothingLeft(r.t, r.state, gone...)
	} else {
		hosttest.EventuallyAtMost(r.t, "control groups", 0, func() int { return len(servetest.Groups(gone...)) })
	}
	if _, err := os.Stat(filepath.Join(r.state, "causeway")); err != nil {
		return // no gateway was started
	}
	c, err := gateway.Connect(r.t.Context(), r.state, gateway.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	// A network ends when the gateway notices that no process has its other end.
	hosttest.EventuallyNoError(r.t, func() error {
		attachments, err := c.List(r.t.Context())
		if err != nil {
			r.t.Fatal(err)
		}
		attachments = slices.DeleteFunc(attachments, func(l gateway.Status) bool { return known[l.Sandbox] })
		if len(attachments) > 0 {
			return fmt.Errorf("attachments are left: %+v", attachments)
		}
		return nil
	})
}

// sh runs a shell line in a sandbox, which must succeed.
func (r *rig) sh(sb *crannog.Sandbox, line string) string {
	r.t.Helper()
	res, err := sb.Exec(r.t.Context(), api.Exec{Cmd: []string{"sh", "-c", line}, TimeoutSeconds: 1200})
	if err != nil || res.ExitCode != 0 {
		r.t.Fatalf("run %s: %+v, %v", line, res, err)
	}
	return strings.TrimSpace(res.Stdout)
}

// addNetwork gives an instance a network without a gateway, even if none was requested.
func (r *rig) addNetwork() func(*engine.Spec) error {
	return func(spec *engine.Spec) error {
		sandboxEnd, ours, err := attachment.Pair(attachment.Packets)
		if err != nil {
			return err
		}
		r.t.Cleanup(func() { ours.Close() })
		spec.Egress = engine.Packets(sandboxEnd)
		return nil
	}
}

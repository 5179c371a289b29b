package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// P10: invalid input gives a typed error, and leaves nothing.
func TestCreateRejectsInvalidRequests(t *testing.T) {
	r := newRig(t)
	type req = sandbox.CreateRequest
	big := map[string]string{}
	for range 65 {
		big[strings.Repeat("k", len(big)+1)] = ""
	}
	for name, tc := range map[string]struct {
		who  sandbox.Principal
		req  req
		kind fault.Kind
		code string
		text string
	}{
		"no caller":        {sandbox.Principal{}, req{}, fault.Unauthenticated, "unauthenticated", ""},
		"bad template":     {alice, req{Template: "../etc"}, fault.Invalid, "template_reference_invalid", ""},
		"unknown":          {alice, req{Template: "nope"}, fault.NotFound, "template_not_found", "template 'nope' not found"},
		"unknown in ns":    {alice, req{Template: "team/base"}, fault.NotFound, "template_not_found", "template 'team/base' not found"},
		"unknown tag":      {alice, req{Template: "base:v2"}, fault.NotFound, "template_tag_not_found", "tag 'v2' does not exist for template 'base'"},
		"negative time":    {alice, req{Timeout: -1}, fault.Invalid, "timeout_invalid", "Timeout must be greater than 0"},
		"too long":         {alice, req{Timeout: 25 * time.Hour}, fault.Invalid, "timeout_invalid", "Timeout cannot be greater than 86400 seconds"},
		"forever by key":   {alice, req{Forever: true}, fault.Denied, "local_only", ""},
		"forever, timed":   {local, req{Forever: true, Timeout: 1}, fault.Invalid, "timeout_invalid", ""},
		"ephemeral":        {alice, req{Ephemeral: true}, fault.Denied, "local_only", ""},
		"host path":        {alice, req{Workspace: "/etc"}, fault.Denied, "local_only", ""},
		"tools":            {alice, req{Tools: []string{"all"}}, fault.Denied, "local_only", ""},
		"tools unknown":    {local, req{Tools: []string{"pyenw"}}, fault.Invalid, "tools_unknown", ""},
		"tools denied":     {local, req{Tools: []string{"pyenv"}, Access: sandbox.Access{Level: "strict"}}, fault.Denied, "policy_denies_tools", ""},
		"programs":         {alice, req{Programs: []string{"/etc/passwd"}}, fault.Denied, "local_only", ""},
		"relative program": {local, req{Programs: []string{"bin/x"}}, fault.Invalid, "programs_invalid", ""},
		"missing program":  {local, req{Programs: []string{"/nonexistent"}}, fault.Invalid, "programs_invalid", ""},
		"all of the host":  {local, req{Programs: []string{"/usr/../"}}, fault.Invalid, "programs_invalid", ""},
		"a device":         {local, req{Programs: []string{"/dev/null"}}, fault.Invalid, "programs_invalid", ""},
		"many programs":    {local, req{Programs: []string{"/etc", "/etc", "/etc", "/etc", "/etc"}}, fault.Invalid, "programs_invalid", ""},
		"relative path":    {local, req{Workspace: "etc"}, fault.Invalid, "workspace_invalid", ""},
		"missing path":     {local, req{Workspace: "/nonexistent"}, fault.Invalid, "workspace_invalid", ""},
		"file as path":     {local, req{Workspace: "/etc/passwd"}, fault.Invalid, "workspace_invalid", ""},
		"name":             {alice, req{Name: "a b"}, fault.Invalid, "name_invalid", ""},
		"name of dots":     {alice, req{Name: ".."}, fault.Invalid, "name_invalid", ""},
		"long name":        {alice, req{Name: strings.Repeat("a", 64)}, fault.Invalid, "name_invalid", ""},
		"name like ID":     {alice, req{Name: "i0123456789012345678"}, fault.Invalid, "name_invalid", ""},
		"metadata":         {alice, req{Metadata: map[string]string{"": "x"}}, fault.Invalid, "metadata_invalid", ""},
		"metadata utf8":    {alice, req{Metadata: map[string]string{"a": "\xff"}}, fault.Invalid, "metadata_invalid", ""},
		"much metadata":    {alice, req{Metadata: big}, fault.Invalid, "metadata_too_large", ""},
		"env name":         {alice, req{Env: map[string]string{"A=B": "x"}}, fault.Invalid, "env_invalid", ""},
		"env NUL":          {alice, req{Env: map[string]string{"A": "x\x00y"}}, fault.Invalid, "env_invalid", ""},
		"env value":        {alice, req{Env: map[string]string{"A": strings.Repeat("x", 1<<20)}}, fault.Invalid, "env_invalid", ""},
		"mask":             {alice, req{MaskRequestHost: "a\r\nX: y"}, fault.Invalid, "mask_request_host_invalid", ""},
		"mask unicode":     {alice, req{MaskRequestHost: "exämple"}, fault.Invalid, "mask_request_host_invalid", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.req.Template == "" {
				tc.req.Template = "base"
			}
			_, err := r.Create(t.Context(), tc.who, tc.req)
			wantKind(t, err, tc.kind, tc.code)
			if tc.text != "" && fault.PublicText(err) != tc.text {
				t.Errorf("text %q, want %q", fault.PublicText(err), tc.text)
			}
		})
	}
	r.wantNothingLeft()
}

// A request that names neither template nor image gets the template of its engine.
func TestDefaultTemplateOfEngine(t *testing.T) {
	r := newRig(t)
	sb, err := r.Create(t.Context(), alice, sandbox.CreateRequest{})
	if err != nil || sb.TemplateID == "" || sb.Template != sandbox.BaseTemplate {
		t.Errorf("creation without a template: got %+v, %v", sb, err)
	}
}

func TestLimits(t *testing.T) {
	r := newRig(t)
	sb := r.create(alice)
	if sb.Limits != r.create(alice).Limits || sb.Limits.PIDs != 512 || sb.Limits.CommandTimeout != 24*time.Hour || sb.Limits.OutputBytes == 0 {
		t.Errorf("default limits %+v", sb.Limits)
	}
	set := func(f func(*sandbox.Limits)) error {
		var l sandbox.Limits
		f(&l)
		_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Limits: l})
		return err
	}
	for name, f := range map[string]func(*sandbox.Limits, int64){
		"memory":          func(l *sandbox.Limits, n int64) { l.MemoryBytes = n },
		"cpus":            func(l *sandbox.Limits, n int64) { l.MilliCPU = n },
		"pids":            func(l *sandbox.Limits, n int64) { l.PIDs = n },
		"disk":            func(l *sandbox.Limits, n int64) { l.DiskBytes = n },
		"inodes":          func(l *sandbox.Limits, n int64) { l.DiskInodes = n },
		"shm":             func(l *sandbox.Limits, n int64) { l.ShmBytes = n },
		"command timeout": func(l *sandbox.Limits, n int64) { l.CommandTimeout = time.Duration(n) },
		"output":          func(l *sandbox.Limits, n int64) { l.OutputBytes = n },
	} {
		for _, n := range []int64{-1, 1, 1 << 62} {
			err := set(func(l *sandbox.Limits) { f(l, n) })
			wantKind(t, err, fault.Invalid, "limit_out_of_range")
			if text := fault.PublicText(err); !strings.HasPrefix(text, name+" is ") || !strings.Contains(text, "must be from") {
				t.Errorf("%s = %d: got the text %q", name, n, text)
			}
		}
	}
	err := set(func(l *sandbox.Limits) { l.MemoryBytes = 128<<20 - 1 })
	if want := "memory is 127.9m, and must be from 128m to"; !strings.HasPrefix(fault.PublicText(err), want) {
		t.Errorf("text of the error: got %q, want %q…", fault.PublicText(err), want)
	}
	if err := set(func(l *sandbox.Limits) { l.MemoryBytes = 128 << 20 }); err != nil {
		t.Error(err)
	}
}

// F16: shared memory is half of the memory, unless another size is requested, which is at most all
// of it.
func TestF16SizeOfSharedMemory(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Engines = fake.Registry(enforcing{d.Engines.Default()}) })
	with := func(memory, shm int64) (sandbox.Sandbox, error) {
		return r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base", Limits: sandbox.Limits{Limits: engine.Limits{MemoryBytes: memory, ShmBytes: shm}}})
	}
	for _, c := range []struct{ memory, shm, want int64 }{
		{0, 0, 512 << 20}, {256 << 20, 0, 128 << 20}, {256 << 20, 1 << 20, 1 << 20}, {256 << 20, 256 << 20, 256 << 20}, {0, 64 << 20, 64 << 20},
	} {
		if sb, err := with(c.memory, c.shm); err != nil || sb.Limits.ShmBytes != c.want {
			t.Errorf("%+v: got shared memory of %d, %v", c, sb.Limits.ShmBytes, err)
		}
	}
	_, err := with(256<<20, 257<<20)
	wantKind(t, err, fault.Invalid, "limit_out_of_range")
}

// enforcing is an engine that reports a memory limit that is visible inside.
type enforcing struct{ engine.Engine }

func (e enforcing) Info() engine.Info {
	info := e.Engine.Info()
	info.Enforces = []engine.Limit{engine.LimitMemory, engine.LimitShm}
	info.Shows = info.Enforces
	return info
}

// On a small host the defaults are lower, so that they are not refused.
func TestLimitsOfSmallHost(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Settings.Max.MemoryBytes = 256 << 20 })
	if sb := r.create(alice); sb.Limits.MemoryBytes != 256<<20 {
		t.Errorf("got memory of %d, want 256 MiB", sb.Limits.MemoryBytes)
	}
}

// The guest gets the values that the API reports for the sandbox.
func TestGuestConfig(t *testing.T) {
	var spec engine.Spec
	r := newRig(t, func(d *lifecycle.Deps) {
		d.Engines = fake.Registry(recordingEngine{d.Engines.Default().(*fake.Engine), &spec})
	})
	dir := t.TempDir()
	sb := r.create(local, func(c *sandbox.CreateRequest) {
		c.Name, c.Workspace, c.PrivatePorts = "web.1", dir, true
		c.Env = map[string]string{"A": "b", "E2B_SANDBOX_ID": "forged"}
	})
	var c guest.Config
	if err := json.Unmarshal(spec.Boot.Config, &c); err != nil {
		t.Fatal(err)
	}
	if c.SandboxID != sb.ID || c.TemplateID != templateID || c.AccessToken != sb.AccessToken || !c.EndAt.Equal(sb.EndAt) ||
		c.DefaultUser != "user" || c.DefaultDir != "/workspace" || c.CommandTimeout != sb.Limits.CommandTimeout ||
		c.MemoryBytes != sb.Limits.MemoryBytes || c.PIDs != sb.Limits.PIDs || c.Hostname != "web.1" {
		t.Errorf("guest gets %+v of %+v", c, sb)
	}
	for k, v := range map[string]string{"A": "b", "E2B_SANDBOX": "true", "E2B_SANDBOX_ID": sb.ID, "E2B_TEMPLATE_ID": templateID} {
		if c.Env[k] != v {
			t.Errorf("env %s is %q, want %q", k, c.Env[k], v)
		}
	}
	tokens := []string{c.AccessToken, c.ControlToken, sb.TrafficToken}
	for i, token := range tokens {
		if len(token) != 40 || token == tokens[(i+1)%3] {
			t.Errorf("tokens must differ and have 40 characters: %q", tokens)
		}
	}
	if spec.Workspace != dir || spec.Limits != sb.Limits.Limits || spec.ID != sb.ID {
		t.Errorf("specification: got %+v", spec)
	}
}

// recordingEngine records the specification of the last created instance.
type recordingEngine struct {
	*fake.Engine
	spec *engine.Spec
}

func (s recordingEngine) Create(ctx context.Context, spec engine.Spec) error {
	*s.spec = spec
	return s.Engine.Create(ctx, spec)
}

func TestCreateEnforcesMaxLive(t *testing.T) {
	r := newRig(t, func(d *lifecycle.Deps) { d.Settings.MaxLive = 5 })
	var group sync.WaitGroup
	errs := make(chan error, 20)
	for range 20 {
		group.Go(func() {
			_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base"})
			errs <- err
		})
	}
	group.Wait()
	refused := 0
	for range 20 {
		if err := <-errs; err != nil {
			refused++
			wantKind(t, err, fault.Exhausted, "too_many_sandboxes")
		}
	}
	if refused != 15 {
		t.Errorf("%d of 20 refused, want 15", refused)
	}
}

// blockAt blocks creations at a step until the returned function is called.
func (r *rig) blockAt(step fake.Step) (reached <-chan string, release func()) {
	ids, free := make(chan string, 1), make(chan struct{})
	r.setFault(func(at fake.Step, id string) error {
		if at == step {
			ids <- id
			<-free
		}
		return nil
	})
	return ids, func() { r.setFault(nil); close(free) }
}

func TestRemoveCancelsCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		reached, release := r.blockAt(fake.CreateDir)
		created := make(chan error)
		go func() {
			_, err := r.Create(context.Background(), alice, sandbox.CreateRequest{Template: "base"})
			created <- err
		}()
		id := <-reached
		removed := make(chan error)
		go func() { removed <- r.Remove(context.Background(), alice, id) }()
		synctest.Wait()
		release()
		wantKind(t, <-created, fault.Conflict, "sandbox_removed")
		if err := <-removed; err != nil {
			t.Error(err)
		}
		_, err := r.Get(t.Context(), alice, id)
		wantKind(t, err, fault.NotFound, "sandbox_not_found")
		r.wantNothingLeft()
	})
}

func TestCanceledCallerUndoesCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		reached, release := r.blockAt(fake.CreateServe)
		ctx, cancel := context.WithCancel(t.Context())
		created := make(chan error)
		go func() {
			_, err := r.Create(ctx, alice, sandbox.CreateRequest{Template: "base"})
			created <- err
		}()
		<-reached
		cancel()
		release()
		wantKind(t, <-created, fault.Canceled, "canceled")
		r.wantNothingLeft()
	})
}

func TestCloseCancelsCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		reached, release := r.blockAt(fake.CreateServe)
		created := make(chan error)
		go func() {
			_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base"})
			created <- err
		}()
		<-reached
		closed := make(chan error)
		go func() { closed <- r.Close(context.Background()) }()
		synctest.Wait()
		release()
		wantKind(t, <-created, fault.Unavailable, "shutting_down")
		if err := <-closed; err != nil {
			t.Error(err)
		}
		_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base"})
		wantKind(t, err, fault.Unavailable, "shutting_down")
		r.wantNothingLeft()
	})
}

// failingMove is a store in which the last step of a creation fails.
type failingMove struct {
	sandbox.Store
	removed bool // the row is removed instead of an error
}

var errInjected = errors.New("broken on purpose")

func (b failingMove) Move(ctx context.Context, id string, m sandbox.Move) (bool, error) {
	if m.To != sandbox.Running {
		return b.Store.Move(ctx, id, m)
	}
	if !b.removed {
		return false, errInjected
	}
	return false, b.Store.Delete(ctx, id)
}

func TestCreateFailsAfterBoot(t *testing.T) {
	for _, removed := range []bool{false, true} {
		r := newRig(t, func(d *lifecycle.Deps) { d.Store = failingMove{d.Store, removed} })
		_, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base"})
		if removed {
			wantKind(t, err, fault.Conflict, "sandbox_removed")
		} else if !errors.Is(err, errInjected) {
			t.Errorf("got error %v, want the injected one", err)
		}
		r.wantNothingLeft()
	}
}

// TestFailedRemoveIsRetried checks that a failed removal is retried until it succeeds.
func TestFailedRemoveIsRetried(t *testing.T) {
	for _, step := range fake.Steps[4:] {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			sb := r.create(alice)
			gone := r.Gone(sb.ID)
			r.setFault(func(at fake.Step, _ string) error {
				if at == step {
					return errInjected
				}
				return nil
			})
			if err := r.Remove(t.Context(), alice, sb.ID); !errors.Is(err, errInjected) {
				t.Errorf("%s: got error %v, want the injected one", step, err)
			}
			<-gone
			if got, _ := r.Get(t.Context(), alice, sb.ID); got.State != sandbox.Stopping {
				t.Errorf("%s: got state %s, want stopping", step, got.State)
			}
			r.setFault(nil)
			time.Sleep(6 * time.Second)
			if got := r.stopped(sb.ID); got.Reason != "killed" {
				t.Errorf("%s: got reason %q, want killed", step, got.Reason)
			}
			r.wantNothingLeft()
		})
	}
}

// TestFailedUndoIsRetried checks that a failed undo of a failed creation is retried.
func TestFailedUndoIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(d *lifecycle.Deps) { d.Store = failingMove{d.Store, false} })
		r.setFault(func(at fake.Step, _ string) error {
			if at == fake.RemoveBegin {
				return errInjected
			}
			return nil
		})
		if _, err := r.Create(t.Context(), alice, sandbox.CreateRequest{Template: "base"}); err == nil {
			t.Error("the sandbox was created although its row cannot be set to running")
		}
		r.setFault(nil)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		hosttest.Eventually(t, "the maintenance loop removes the instance", func() bool {
			held, err := r.engine.List(t.Context())
			return err == nil && len(held) == 0
		})
		r.wantNothingLeft()
	})
}

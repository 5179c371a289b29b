package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/demand"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/sandbox/warmpool"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// poolRig is a rig with a gateway, whose guests can be claimed.
type poolRig struct {
	*rig
	fakeGateway *fakeGateway
	values      *ownValueStore

	mu      sync.Mutex
	booted  map[string]guest.Config
	claimed map[string]guest.Config
	refuse  func(guest.Config) (status int, text string)
	ran     func(id string, r *http.Request) // is called for requests to the process service
	memory  demand.Memory
	options warmpool.Options // beyond what start sets
}

// fakeGateway is a gateway that remembers each sandbox's attachment.
type fakeGateway struct {
	mu       sync.Mutex
	attached map[string]sandbox.Attachment
	fail     error
}

func (l *fakeGateway) Attach(_ context.Context, a sandbox.Attachment) (sandbox.Link, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attached[a.Sandbox] = a
	null, err := os.Open(os.DevNull)
	return sandbox.Link{End: null, Env: map[string]string{"SSL_CERT_FILE": "/" + a.Sandbox}}, err
}

func (l *fakeGateway) Update(_ context.Context, a sandbox.Attachment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, exists := l.attached[a.Sandbox]; !exists || l.fail != nil {
		return errors.Join(errors.New("not attached"), l.fail)
	}
	l.attached[a.Sandbox] = a
	return nil
}

func (l *fakeGateway) Detach(_ context.Context, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.attached, id)
	return nil
}

func (l *fakeGateway) Adopt(context.Context, []string) ([]string, error) { return nil, nil }

func (l *fakeGateway) failWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

func (l *fakeGateway) all() map[string]sandbox.Attachment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.attached)
}

func newPoolRig(t *testing.T, options ...option) *poolRig {
	t.Helper()
	p := &poolRig{
		rig:    &rig{t: t, dir: t.TempDir(), ends: make(map[string]time.Time)},
		booted: map[string]guest.Config{}, claimed: map[string]guest.Config{},
		fakeGateway: &fakeGateway{attached: map[string]sandbox.Attachment{}}, values: &ownValueStore{values: map[string]map[string]map[string]config.Secret{}},
		memory: demand.Memory{Total: 40 << 30, Available: 20 << 30},
	}
	p.open(append([]option{p.withClaims}, options...)...)
	t.Cleanup(func() {
		p.close()
		p.engine.Close()
	})
	return p
}

// withClaims installs an engine with the same directory whose guests can be claimed.
func (p *poolRig) withClaims(d *lifecycle.Deps) {
	e, err := fake.New(fake.Options{Dir: filepath.Join(p.dir, "run"), Guest: p.guest, Fault: p.fail, Enforces: enforced, Shows: enforced})
	if err != nil {
		p.t.Fatal(err)
	}
	d.Engines, d.Gateway, d.Sealed = fake.Registry(e), p.fakeGateway, p.values
}

// guest serves a control service whose tokens a claim changes.
func (p *poolRig) guest(spec engine.Spec) (map[int]http.Handler, func(), error) {
	var boot guest.Config
	if err := json.Unmarshal(spec.Boot.Config, &boot); err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	p.booted[spec.ID] = boot
	p.mu.Unlock()
	ports, end, err := p.rig.guest(spec)
	control := ports[guestboot.Port]
	ports[guestboot.Port] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/process.Process/") && p.ran != nil {
			p.ran(spec.ID, r)
		}
		if r.URL.Path != guest.PathClaim {
			control.ServeHTTP(w, r)
			return
		}
		cfg, _, err := guest.Decode(r.Body)
		if err != nil || cfg.Renew != guest.Claimed || r.Header.Get(guest.ControlHeader) != boot.ControlToken {
			http.Error(w, "malformed claim", http.StatusBadRequest)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.refuse != nil {
			if status, text := p.refuse(cfg); status != 0 {
				http.Error(w, text, status)
				return
			}
		}
		p.claimed[spec.ID] = cfg
		w.WriteHeader(http.StatusNoContent)
	})
	return ports, end, err
}

func (p *poolRig) setRefuse(f func(guest.Config) (int, string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = f
}

func (p *poolRig) setMemory(m demand.Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memory = m
}

// configs are the configurations of a sandbox's boot and of its claim.
func (p *poolRig) configs(id string) (boot, claim guest.Config, claimed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	claim, claimed = p.claimed[id]
	return p.booted[id], claim, claimed
}

// lastSentEnd returns the end that a guest was last sent.
func (p *poolRig) lastSentEnd(id string) time.Time {
	p.rig.mu.Lock()
	defer p.rig.mu.Unlock()
	return p.rig.ends[id]
}

var (
	plain  = sandbox.CreateRequest{Template: "base"}
	opened = sandbox.CreateRequest{Template: "base", Access: sandbox.Access{Net: sandbox.NetOpen}}
)

// start starts a pool and waits until the default sandboxes are warm.
func (p *poolRig) start(defaults ...sandbox.CreateRequest) {
	p.t.Helper()
	p.begin(defaults...)
	p.awaitWarm(len(defaults))
}

// begin starts a pool without waiting for warm sandboxes.
func (p *poolRig) begin(defaults ...sandbox.CreateRequest) {
	o := p.options
	o.Defaults, o.Preload = defaults, map[string][]string{"code-interpreter-v1": {"python", "javascript"}}
	o.Memory = func() (demand.Memory, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.memory, nil
	}
	p.StartPool(o)
}

// awaitWarm waits until at least that many sandboxes are warm.
func (p *poolRig) awaitWarm(n int) {
	p.t.Helper()
	hosttest.Eventually(p.t, "sandboxes are warm", func() bool { return p.countWarm() >= n })
}

// wantCleanClose fails the test if the end of the Service leaves anything but rows.
func (p *poolRig) wantCleanClose() {
	p.t.Helper()
	p.close()
	p.open(p.withClaims)
	p.wantNothingLeft()
	if rows := p.rows(); len(rows) != 0 {
		p.t.Errorf("waiting rows: %v", rows)
	}
	if left := p.fakeGateway.all(); len(left) != 0 || p.values.count() != 0 {
		p.t.Errorf("attachments remain: %v, and %d values", left, p.values.count())
	}
}

func (p *poolRig) countWarm() (n int) {
	status, _ := p.Pool()
	for _, k := range status.Kinds {
		n += k.Waiting
	}
	return n
}

// rows are the rows of warm sandboxes.
func (p *poolRig) rows() []sandbox.Row {
	p.t.Helper()
	rows, err := p.store.List(context.Background(), sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Waiting}}})
	if err != nil {
		p.t.Fatal(err)
	}
	return rows
}

var _ sandbox.Store = (*store.Store)(nil)

package warmpool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

// What a waiting sandbox is taken to use until one was measured, and at the
// least: a part of it shows only when it is used.
const (
	leastPrice   = 16 << 20
	guessedPrice = 32 << 20
	// preloadPrice is what a loaded language adds, at the least.
	preloadPrice = 48 << 20
)

// kind is all that cannot change in a sandbox that has booted.
type kind struct {
	engine   engine.Engine
	key      string
	family   string // the key without the state of the template's programs
	name     string // for people
	template sandbox.Template
	asked    string // the template as it was asked for
	limits   sandbox.Limits
	covered  rootfs.Covered
	noRoot   bool
	linked   bool
	preload  []string

	// Written by the loop that fills the kind, under Pool.mu.

	snapshot  *templateSnapshot // nil is none
	bootUntil time.Time         // none is made until then

	// Guarded by Pool.mu.

	ready    []*warm // the oldest first
	filling  bool    // one more is being made
	measured int64   // bytes that one uses, or 0
	claimed  int64   // were handed to callers
	missed   int64   // creations that found none
}

// warm is one sandbox that is ready for a caller.
type warm struct {
	kind    *kind
	id      string
	control string // the token of its control service
	env     map[string]string
	guest   *connection
	unwatch context.CancelFunc
	// restored is set if it continues from a template snapshot.
	restored bool
	probed   time.Time // guarded by Pool.mu
	probing  *task     // the latest; guarded by Pool.mu as long as it waits
	// rehearsal is set before it waits.
	rehearsal *rehearsal
	retry     time.Time // when its removal is tried again
}

// price is what one more is taken to use.
func (k *kind) price() int64 {
	loaded := int64(len(k.preload)) * preloadPrice
	if k.measured > 0 {
		return max(k.measured, leastPrice+loaded)
	}
	return guessedPrice + loaded
}

// take takes the oldest one out, or returns nil: the oldest of those that do
// not rehearse and are not looked at just now, if there are any. Pool.mu must be held.
func (k *kind) take() *warm {
	if len(k.ready) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(k.ready, func(w *warm) bool { return !w.rehearsal.running() && !w.probing.running() }))
	w := k.ready[i]
	k.ready = slices.Delete(k.ready, i, i+1)
	return w
}

// keyOf names the kind of a sandbox. It is made of all that it is made of,
// but for what a claim gives it: what is added to either type later makes
// kinds differ until somebody decides that it need not.
func keyOf(plan Plan) (string, error) {
	spec, config := plan.Spec, plan.Config
	spec.ID, spec.Hostname, spec.Boot.Config, spec.Egress = "", "", nil, engine.Egress{}
	spec.Events = nil
	config.SandboxID, config.Hostname, config.AccessToken, config.ControlToken = "", "", "", ""
	config.Env, config.EndAt, config.Files, config.Preload, config.Renew = nil, time.Time{}, nil, nil, ""
	// All of them run again for the claimer.
	config.Checks.Offline, config.Checks.Refused, config.Checks.Dropped = false, nil, nil
	config.Checks.Known, config.Checks.Unknown, config.Checks.Reached, config.Checks.Closed = nil, nil, nil, nil
	text, err := json.Marshal(struct {
		Spec           engine.Spec
		Config         guest.Config
		Linked         bool
		Engine         string
		Name, Revision string
	}{spec, config, plan.Row.Access.Linked(), plan.Row.Engine, plan.Template.Name, plan.Template.Revision})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// kindOf is the kind of the sandbox that a request would make.
func (p *Pool) kindOf(ctx context.Context, req sandbox.CreateRequest) (*kind, error) {
	plan, err := p.deps.Instances.Plan(ctx, req)
	if err != nil {
		return nil, err
	}
	return p.newKind(plan)
}

func (p *Pool) newKind(plan Plan) (*kind, error) {
	key, err := keyOf(plan)
	if err != nil {
		return nil, err
	}
	r, bare := plan.Row, plan
	bare.Template.Revision = ""
	family, err := keyOf(bare)
	if err != nil {
		return nil, err
	}
	e, err := p.deps.Engines.Of(r.Engine)
	if err != nil {
		return nil, err
	}
	k := &kind{
		engine: e, key: key, family: family, name: r.Template, template: plan.Template, asked: r.Template, limits: r.Limits,
		covered: rootfs.CoveredBy(plan.Spec), noRoot: plan.Config.NoRoot, linked: r.Access.Linked(),
	}
	if k.linked {
		k.name += ", linked"
	}
	if r.Engine != p.deps.Engines.Default().Info().Name {
		k.name += ", " + r.Engine
	}
	return k, nil
}

// closedAccess is what a waiting sandbox may reach: nothing.
func (k *kind) closedAccess() sandbox.Access {
	if !k.linked {
		return sandbox.Access{Net: sandbox.NetNone}
	}
	return sandbox.Access{Net: sandbox.NetPolicy, Documents: []policy.Document{policy.None()}}
}

// closedPolicy is the policy of a waiting sandbox. It refuses to be one that
// lets anything through, whatever the layers above say.
func (p *Pool) closedPolicy(k *kind) (*policy.Policy, error) {
	closed, err := p.deps.Access.Compile(k.closedAccess())
	if err != nil {
		return nil, err
	}
	open := closed.Reachable(policy.NobodysName)
	for _, h := range closed.Document().Network.Hosts {
		open = open || h.Host != "" && closed.Reachable(strings.TrimPrefix(h.Host, "*."))
	}
	for _, b := range closed.Binds() {
		open = open || closed.Reachable(b.Host)
	}
	if open {
		return nil, fault.New(fault.Internal, "pool_not_closed", "the policy of a waiting sandbox is not closed")
	}
	return closed, nil
}

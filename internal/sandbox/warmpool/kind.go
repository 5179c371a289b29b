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

// The assumed memory of a warm sandbox until one is measured, and the lower limit of measurements,
// because a sandbox uses some of its memory only later.
const (
	minPrice     = 16 << 20
	assumedPrice = 32 << 20
	// preloadPrice is the minimum memory that a loaded language adds.
	preloadPrice = 48 << 20
)

// kind comprises all properties of a sandbox that cannot change after its boot.
type kind struct {
	engine            engine.Engine
	key               string
	family            string // the key without the state of the template's programs
	name              string // name for people
	template          sandbox.Template
	requestedTemplate string // the template's name in the request
	limits            sandbox.Limits
	masks             rootfs.Masks
	noRoot            bool
	attached          bool
	preload           []string

	// The fields below are written by the loop that fills the kind, under Pool.mu.

	snapshot  *templateSnapshot // nil is none
	bootUntil time.Time         // no snapshot is made until then

	// The fields below are guarded by Pool.mu.

	ready    []*warm // the oldest first
	filling  bool    // one more is being made
	measured int64   // memory of one sandbox in bytes, or 0
	acquired int64   // sandboxes that were handed to callers
	missed   int64   // requests that found none
}

// warm is one sandbox that is ready for a caller.
type warm struct {
	kind    *kind
	id      string
	control string // the token of its control service
	env     map[string]string
	guest   *connection
	unwatch context.CancelFunc
	// restored is set if it was restored from a template snapshot.
	restored bool
	probed   time.Time // guarded by Pool.mu
	probing  *task     // the latest probe; guarded by Pool.mu while it is in the pool
	// warmUp is set before it enters the pool.
	warmUp *warmUp
	retry  time.Time // when its removal is retried
}

// price returns the assumed memory of another sandbox of this kind.
func (k *kind) price() int64 {
	loaded := int64(len(k.preload)) * preloadPrice
	if k.measured > 0 {
		return max(k.measured, minPrice+loaded)
	}
	return assumedPrice + loaded
}

// take removes and returns the oldest sandbox, or returns nil. If possible it takes one that is
// neither in its warm-up nor being probed. Pool.mu must be held.
func (k *kind) take() *warm {
	if len(k.ready) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(k.ready, func(w *warm) bool { return !w.warmUp.running() && !w.probing.running() }))
	w := k.ready[i]
	k.ready = slices.Delete(k.ready, i, i+1)
	return w
}

// keyOf returns the key of a sandbox's kind. It includes all properties of a sandbox except those
// that an acquisition changes. So a field that is later added to engine.Spec or guest.Config
// makes kinds differ until it is excluded here.
func keyOf(plan Plan) (string, error) {
	spec, config := plan.Spec, plan.Config
	spec.ID, spec.Hostname, spec.Boot.Config, spec.Egress = "", "", nil, engine.Egress{}
	spec.Events = nil
	config.SandboxID, config.Hostname, config.AccessToken, config.ControlToken = "", "", "", ""
	config.Env, config.EndAt, config.Files, config.Preload, config.Renew = nil, time.Time{}, nil, nil, ""
	// All of these run again for the owner.
	config.Checks.Offline, config.Checks.Refused, config.Checks.Dropped = false, nil, nil
	config.Checks.Known, config.Checks.Unknown, config.Checks.Reached, config.Checks.Closed = nil, nil, nil, nil
	text, err := json.Marshal(struct {
		Spec           engine.Spec
		Config         guest.Config
		Linked         bool
		Engine         string
		Name, Revision string
		Start          *sandbox.Start `json:",omitempty"`
		Memory         string         `json:",omitempty"`
	}{spec, config, plan.Row.Access.Linked(), plan.Row.Engine, plan.Template.Name, plan.Template.Revision, plan.Template.Start, plan.Row.Origin})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// kindOf returns the kind of the sandbox that a request would create.
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
		engine: e, key: key, family: family, name: r.Template, template: plan.Template, requestedTemplate: r.Template, limits: r.Limits,
		masks: rootfs.MasksOf(plan.Spec), noRoot: plan.Config.NoRoot, attached: r.Access.Linked(),
	}
	if k.attached {
		k.name += ", linked"
	}
	if r.Engine != p.deps.Engines.Default().Info().Name {
		k.name += ", " + r.Engine
	}
	return k, nil
}

// closedAccess is the access of a warm sandbox, which may reach nothing.
func (k *kind) closedAccess() sandbox.Access {
	if !k.attached {
		return sandbox.Access{Net: sandbox.NetNone}
	}
	return sandbox.Access{Net: sandbox.NetPolicy, Documents: []policy.Document{policy.None()}}
}

// closedPolicy returns the policy of a warm sandbox. It returns an error if the policy allows any
// traffic, whatever the upper layers specify.
func (p *Pool) closedPolicy(k *kind) (*policy.Policy, error) {
	closed, err := p.deps.Access.Compile(k.closedAccess())
	if err != nil {
		return nil, err
	}
	reachable := closed.Reachable(policy.UnusedName)
	for _, h := range closed.Document().Network.Hosts {
		reachable = reachable || h.Host != "" && closed.Reachable(strings.TrimPrefix(h.Host, "*."))
	}
	for _, b := range closed.Binds() {
		reachable = reachable || closed.Reachable(b.Host)
	}
	if reachable {
		return nil, fault.New(fault.Internal, "pool_not_closed", "the policy of a warm sandbox is not closed")
	}
	return closed, nil
}

// Package mcpserver implements the Model Context Protocol server: the tools of agents, their state
// between calls, and the HTTP endpoint. It uses only the public client, so that a remote server, a
// local one and an engine in this process behave the same, with the same rules, quotas and audit
// entries.
package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/crannog/crannog"
)

// Options configure NewTenant. Client and Log are required.
type Options struct {
	Client  *crannog.Client
	Log     *slog.Logger
	Version string
	// Create are the options of sandboxes that tools create. An agent chooses only a name and the
	// starting point; otherwise it could widen its own policy.
	Create []crannog.CreateOption
	// Keep are further options of the default sandbox, if Name or Labelled makes it outlive this
	// process.
	Keep []crannog.CreateOption
	// Name makes the default sandbox outlive this process under a name, and uses an existing
	// sandbox with that name. Without it, the default sandbox belongs to this process only.
	Name string
	// Labelled marks the default sandbox with a label by which any process finds it. Use extends
	// its life. It excludes Name.
	Labelled bool
	// Hold keeps a sandbox of this process alive until the returned function is called.
	Hold func(*crannog.Sandbox) func()
	// All lets a tool name any sandbox that the client may see. Otherwise it may name only
	// sandboxes that were created here.
	All bool
	// Idle is how long a sandbox that outlives this process lives after its last use; zero means an
	// hour. With Fixed, use does not change its end.
	Idle  time.Duration
	Fixed bool
	// Approver is the person who decides requests of the agent. The zero value is a person outside
	// of the agent's client.
	Approver Approver
	// Refused, if set, writes an audit entry about a refused decision of an approval request.
	Refused func(what, code string)
	// Extend changes each server in tests.
	Extend Extension
}

// Approver is the person who may decide an agent's requests.
type Approver string

// Approvers. The agent's client may answer for its user without asking, so it is not used unless
// the operator has allowed it.
const (
	Person Approver = "person" // in the console, by the CLI or a webhook
	Any    Approver = "any"    // also the person at the agent's client
)

// defaultIdle is how long a sandbox lives after its last use. The user of an agent may think for
// minutes before the next request.
const defaultIdle = time.Hour

// Tenant is the state of one caller's agents: the sandboxes that they use, and the commands that
// run in them. It is safe for concurrent use.
type Tenant struct {
	o          Options
	state      *stateKey
	creating   chan struct{} // holds one token: only one call creates the default sandbox
	pictures   *pictures     // shared by all Tenants of a server
	pictureUse pictureUse    // guarded by pictures

	mu        sync.Mutex
	sandboxes map[string]*agentSandbox
	created   map[string]func() // IDs of created sandboxes, with the function that ends Hold
	defaultID string            // ID of the default sandbox, or ""
	reserved  int               // places of sandboxes that are being created
	lastUse   time.Time
	calls     int
}

// NewTenant returns a Tenant. Close ends it.
func NewTenant(o Options) (*Tenant, error) {
	if o.Client == nil || o.Log == nil {
		return nil, errors.New("mcpserver: an option is missing")
	}
	if o.Name != "" && o.Labelled {
		return nil, errors.New("mcpserver: Name and Labelled exclude each other")
	}
	if o.Idle <= 0 {
		o.Idle = defaultIdle
	}
	if o.Approver == "" {
		o.Approver = Person
	}
	d := &Tenant{
		o: o, state: newStateKey(), creating: make(chan struct{}, 1), pictures: newPictures(),
		sandboxes: map[string]*agentSandbox{}, created: map[string]func(){}, lastUse: time.Now(),
	}
	d.creating <- struct{}{}
	return d, nil
}

// Close ends the sandboxes that were created here. It does not end a default sandbox with a name,
// nor any sandbox if Labelled is set, because other processes continue to use them.
func (d *Tenant) Close(ctx context.Context) error {
	d.mu.Lock()
	created, sandboxes := d.created, d.sandboxes
	d.created, d.sandboxes = map[string]func(){}, map[string]*agentSandbox{}
	d.mu.Unlock()
	for _, b := range sandboxes {
		d.pictures.forgetSandbox(b)
	}
	var errs []error
	for id, release := range created {
		release()
		if d.o.Labelled {
			continue
		}
		sb, err := d.o.Client.Get(ctx, id)
		if err == nil {
			err = sb.Kill(ctx)
		}
		if err != nil && !errors.Is(err, crannog.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// enter records that a call is in progress, until the returned function is called.
func (d *Tenant) enter() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.lastUse = time.Now()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls--
		d.lastUse = time.Now()
	}
}

// idle returns the time since the last call, or zero while a command runs that only this Tenant can
// read or end.
func (d *Tenant) idle() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls > 0 {
		return 0
	}
	for _, b := range d.sandboxes {
		if b.busy() {
			return 0
		}
	}
	return time.Since(d.lastUse)
}

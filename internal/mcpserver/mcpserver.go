// Package mcpserver owns Crannog as agents see it over the Model Context
// Protocol: the tools, what they remember between calls, and their way over
// HTTP. It reaches sandboxes through the public client alone, so that a remote
// server, a local one and an engine in this process are the same to it, and
// rules, quotas and records are theirs.
package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/crannog/crannog"
)

// Options say for whom a Desk works. Client and Log are required.
type Options struct {
	Client  *crannog.Client
	Log     *slog.Logger
	Version string
	// Create is what a sandbox is made of that a tool makes. An agent has no
	// say in it but for a name and what it starts from: it could widen its own
	// policy otherwise.
	Create []crannog.CreateOption
	// Keep is what the default sandbox is made of besides, if Name or Labelled
	// keeps it.
	Keep []crannog.CreateOption
	// Name keeps the default sandbox under a name, and takes the one that has
	// it. Without it the default sandbox is one of this process's own.
	Name string
	// Labelled makes the default sandbox one that any process finds again by
	// its label. It is kept alive by use. It excludes Name.
	Labelled bool
	// Hold keeps a sandbox of this process's own alive until what it returns
	// is called.
	Hold func(*crannog.Sandbox) func()
	// All lets a tool name any sandbox that the client may see. Otherwise it
	// may name those that were made here.
	All bool
	// Idle is how long a sandbox that is kept lives after its last
	// use; zero is an hour. With Fixed its end stays where it was.
	Idle  time.Duration
	Fixed bool
	// Approver says who answers what an agent asks; the zero value is a
	// person elsewhere.
	Approver Approver
	// Refused, if set, puts on record that an answer to a question was turned
	// away.
	Refused func(what, code string)
	// Extend adds to each server.
	Extend Extension
}

// Approver says who may answer an agent's question.
type Approver string

// Approvers. The agent's own host may answer for its user without asking
// anybody, so that it is not asked unless somebody has said so.
const (
	Person Approver = "person" // in the console, by the CLI or a webhook
	Any    Approver = "any"    // also the person at the agent's client
)

// defaultIdle is how long a sandbox lives after its last use. An agent's user
// thinks for minutes, and goes home for hours.
const defaultIdle = time.Hour

// Desk is what one caller's agents work at: the sandboxes that they use, and
// what runs in them. It is safe for concurrent use.
type Desk struct {
	o        Options
	state    *stateKey
	making   chan struct{} // holds one token: one default sandbox is made at a time
	pictures *pictures     // those of a server's desks are together
	heap     heap          // guarded by pictures

	mu      sync.Mutex
	boxes   map[string]*box
	made    map[string]func() // IDs of what was made here, with what ends the hold
	first   string            // ID of the default sandbox, once there is one
	coming  int               // sandboxes that are being made
	lastUse time.Time
	calls   int
}

// NewDesk returns a Desk. Close ends it.
func NewDesk(o Options) (*Desk, error) {
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
	d := &Desk{
		o: o, state: newStateKey(), making: make(chan struct{}, 1), pictures: newPictures(),
		boxes: map[string]*box{}, made: map[string]func(){}, lastUse: time.Now(),
	}
	d.making <- struct{}{}
	return d, nil
}

// Close ends the sandboxes that were made here, except a default one that is kept, and all of a
// Desk that is Labelled: another process continues to use those.
func (d *Desk) Close(ctx context.Context) error {
	d.mu.Lock()
	made, boxes := d.made, d.boxes
	d.made, d.boxes = map[string]func(){}, map[string]*box{}
	d.mu.Unlock()
	for _, b := range boxes {
		d.pictures.forgetBox(b)
	}
	var errs []error
	for id, rest := range made {
		rest()
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

// enter notes that a call is under way, until the returned function is called.
func (d *Desk) enter() func() {
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

// idle returns how long nothing has been asked of the desk, zero while something
// runs that only it can read or end.
func (d *Desk) idle() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls > 0 {
		return 0
	}
	for _, b := range d.boxes {
		if b.busy() {
			return 0
		}
	}
	return time.Since(d.lastUse)
}

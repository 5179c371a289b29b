package warmpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
)

const (
	// slowRestores is how many restores in a row may take longer than a boot before the kind is booted
	// again.
	slowRestores = 3
	// bootAgain is how long sandboxes of a kind are booted after the kind's state could not be
	// saved.
	bootAgain = 10 * time.Minute
	// bootTimeout limits a boot, and saveTimeout saving the state.
	bootTimeout = time.Minute
	saveTimeout = 10 * time.Minute
)

// templateSnapshot is the saved state of a sandbox whose languages are loaded. The sandbox itself
// never had an owner and has ended. Only sandboxes that are restored from the state share its
// memory, and each of them has replaced everything that must be unique.
type templateSnapshot struct {
	draft  sandbox.Draft
	booted time.Duration // how long the boot took
	slow   int           // restores in a row that took longer
}

// loadedBefore returns the languages that are loaded in a kind's template snapshot. loadedAfter
// returns those that each sandbox loads after it is restored from the snapshot.
func (k *kind) loadedBefore() []string { return k.loaded(true) }
func (k *kind) loadedAfter() []string  { return k.loaded(false) }

func (k *kind) loaded(before bool) (list []string) {
	for _, language := range k.preload {
		if guest.Copyable(language) == before {
			list = append(list, language)
		}
	}
	return list
}

// launch starts a warm sandbox: from its kind's template snapshot, if there is one, or by a boot.
func (p *Pool) launch(ctx context.Context, k *kind, spec engine.Spec, config guest.Config) error {
	z := k.snapshot
	if z == nil {
		return bootWaiting(ctx, k.engine, spec, config, "")
	}
	started := time.Now()
	config.Renew, config.Preload = guest.Copied, k.loadedAfter()
	err := bootWaiting(ctx, k.engine, spec, config, z.draft.Dir())
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.stopUsingSnapshot(k, err)
	case time.Since(started) <= z.booted:
		z.slow = 0
	default:
		if z.slow++; z.slow >= slowRestores {
			p.stopUsingSnapshot(k, errors.New("restores take longer than boots"))
		}
	}
	return err
}

func bootWaiting(ctx context.Context, e engine.Engine, spec engine.Spec, config guest.Config, dir string) (err error) {
	if spec.Boot.Config, err = json.Marshal(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if dir == "" {
		err = e.Create(ctx, spec)
	} else {
		err = e.(engine.Checkpointer).Restore(ctx, spec, dir) // this engine made the snapshot
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, rootfs.BootError(err))
	}
	return nil
}

// makeSnapshot makes the template snapshot of a kind that should have one, if possible. The
// snapshot is removed with this process, like each draft.
func (p *Pool) makeSnapshot(k *kind, closed *policy.Policy) {
	// A template with a program gets no snapshot: the program would be started a second time.
	if k.template.Start != nil || len(k.loadedBefore()) == 0 || k.snapshot != nil || p.deps.Drafts == nil || time.Now().Before(k.bootUntil) {
		return
	}
	c, ok := k.engine.(engine.Checkpointer)
	if !ok {
		return
	}
	started := time.Now()
	z, err := p.save(k, closed, c)
	if p.ctx.Err() != nil {
		return
	}
	if err != nil {
		p.stopUsingSnapshot(k, err)
		return
	}
	p.mu.Lock()
	k.snapshot = z
	p.mu.Unlock()
	p.deps.Log.Debug("template snapshot created", "kind", k.name, "boot", z.booted, "took", time.Since(started))
}

// save boots a sandbox of the kind, saves it and ends it.
func (p *Pool) save(k *kind, closed *policy.Policy, c engine.Checkpointer) (_ *templateSnapshot, err error) {
	w := &warm{kind: k}
	plan, err := p.planWarm(k, closed)
	if err != nil {
		return nil, err
	}
	w.id, plan.Config.Preload = plan.Row.ID, k.loadedBefore()
	defer p.discard(w)
	started := time.Now()
	if err := p.bootWarm(w, plan); err != nil {
		return nil, err
	}
	z := &templateSnapshot{booted: time.Since(started)}
	if z.draft, err = p.deps.Drafts(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, saveTimeout)
	defer cancel()
	if err := c.Checkpoint(ctx, w.id, z.draft.Dir()); err != nil {
		return nil, errors.Join(fmt.Errorf("save %s: %w", w.id, err), z.draft.Abort())
	}
	return z, nil
}

// stopUsingSnapshot makes the pool boot sandboxes of a kind for a while, because of a failure.
func (p *Pool) stopUsingSnapshot(k *kind, because error) {
	p.deps.Log.Warn("sandboxes with loaded languages are booted", "kind", k.name, "err", because)
	p.mu.Lock()
	defer p.mu.Unlock()
	k.bootUntil = time.Now().Add(bootAgain)
	p.dropSnapshot(k)
}

// dropSnapshot gives up a kind's template snapshot. p.mu must be held.
func (p *Pool) dropSnapshot(k *kind) {
	if k.snapshot != nil {
		p.retired = append(p.retired, k.snapshot)
		k.snapshot = nil
	}
}

// dropRetired removes template snapshots that are not used any more. If a removal fails, the
// snapshot is removed with this process.
func (p *Pool) dropRetired() {
	p.mu.Lock()
	list := p.retired
	p.retired = nil
	p.mu.Unlock()
	for _, z := range list {
		if err := z.draft.Abort(); err != nil {
			p.deps.Log.Warn("template snapshot not removed", "err", err)
		}
	}
}

package lifecycle

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
	// slowRestores is how many restores in a row may take longer than a boot
	// before the kind is booted again.
	slowRestores = 3
	// bootAgain is how long a kind is booted whose state could not be saved.
	bootAgain = 10 * time.Minute
)

// zygote is the state of a sandbox whose languages are loaded. The sandbox
// itself was never anybody's and has ended, so no two that live have the same
// memory but those that went on from it, each of which has renewed what must
// differ.
type zygote struct {
	draft  sandbox.Draft
	booted time.Duration // what it took to boot
	slow   int           // restores in a row that took longer
}

// loadedBefore returns the languages that a kind's template snapshot has loaded.
// loadedAfter returns those that each sandbox loads after it is restored from that.
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

// launch starts a sandbox that will wait: from its kind's zygote, if that has
// one, or from nothing.
func (p *pool) launch(ctx context.Context, k *kind, spec engine.Spec, config guest.Config) error {
	z := k.zygote
	if z == nil {
		return p.s.bootWaiting(ctx, k.engine, spec, config, "")
	}
	began := time.Now()
	config.Renew, config.Preload = guest.Copied, k.loadedAfter()
	err := p.s.bootWaiting(ctx, k.engine, spec, config, z.draft.Dir())
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.forgo(k, err)
	case time.Since(began) <= z.booted:
		z.slow = 0
	default:
		if z.slow++; z.slow >= slowRestores {
			p.forgo(k, errors.New("restores take longer than boots"))
		}
	}
	return err
}

func (s *Service) bootWaiting(ctx context.Context, e engine.Engine, spec engine.Spec, config guest.Config, dir string) (err error) {
	if spec.GuestConfig, err = json.Marshal(config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if dir == "" {
		err = e.Create(ctx, spec)
	} else {
		var c engine.Checkpointer
		if c, err = s.engines.checkpointer(e.Info().Name); err == nil {
			err = c.Restore(ctx, spec, dir)
		}
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", spec.ID, rootfs.BootError(err))
	}
	return nil
}

// breed makes the zygote of a kind that is to have one, if that can be. It
// goes with this process, as what is not committed does.
func (p *pool) breed(k *kind, closed *policy.Policy) {
	if len(k.loadedBefore()) == 0 || k.zygote != nil || p.s.images == nil || time.Now().Before(k.bootUntil) {
		return
	}
	c, err := p.s.engines.checkpointer(k.engine.Info().Name)
	if err != nil {
		return
	}
	began := time.Now()
	z, err := p.save(k, closed, c)
	if p.ctx.Err() != nil {
		return
	}
	if err != nil {
		p.forgo(k, err)
		return
	}
	p.mu.Lock()
	k.zygote = z
	p.mu.Unlock()
	p.s.log.Debug("zygote made", "kind", k.name, "boot", z.booted, "took", time.Since(began))
}

// save boots a sandbox of the kind, writes it down and ends it.
func (p *pool) save(k *kind, closed *policy.Policy, c engine.Checkpointer) (_ *zygote, err error) {
	w := &waiting{kind: k}
	r, spec, config, err := p.s.vacant(k, closed)
	if err != nil {
		return nil, err
	}
	w.id, w.control = r.ID, r.ControlToken
	config.Preload = k.loadedBefore()
	defer p.discard(w)
	began := time.Now()
	if err := p.make(w, p.s.newBoot(r, closed, spec, config, source{})); err != nil {
		return nil, err
	}
	z := &zygote{booted: time.Since(began)}
	if z.draft, err = p.s.images.Begin(newSnapshotID()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.ctx, saveTimeout)
	defer cancel()
	if err := c.Checkpoint(ctx, r.ID, z.draft.Dir()); err != nil {
		return nil, errors.Join(fmt.Errorf("save %s: %w", r.ID, err), z.draft.Abort())
	}
	return z, nil
}

// forgo boots sandboxes of a kind for a while, because of a failure.
func (p *pool) forgo(k *kind, because error) {
	p.s.log.Warn("sandboxes with loaded languages are booted", "kind", k.name, "err", because)
	p.mu.Lock()
	defer p.mu.Unlock()
	k.bootUntil = time.Now().Add(bootAgain)
	p.retire(k)
}

// retire gives a kind's zygote up. p.mu must be held.
func (p *pool) retire(k *kind) {
	if k.zygote != nil {
		p.retired = append(p.retired, k.zygote)
		k.zygote = nil
	}
}

// bury drops what was written down of zygotes that are of no more use. What
// cannot be dropped goes with this process.
func (p *pool) bury() {
	p.mu.Lock()
	list := p.retired
	p.retired = nil
	p.mu.Unlock()
	for _, z := range list {
		if err := z.draft.Abort(); err != nil {
			p.s.log.Warn("zygote not removed", "err", err)
		}
	}
}

package fake

import (
	"context"
	"maps"

	"github.com/crannog/crannog/internal/engine"
)

// Freeze implements engine.Freezer. Every command of the sandbox's programs waits until Thaw.
func (e *Programs) Freeze(ctx context.Context, id string) error {
	return e.setFrozen(ctx, id, true)
}

// Thaw implements engine.Freezer.
func (e *Programs) Thaw(ctx context.Context, id string) error {
	return e.setFrozen(ctx, id, false)
}

// setFrozen freezes or thaws a sandbox.
func (e *Engine) setFrozen(ctx context.Context, id string, freeze bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	b.freezing.Lock()
	defer b.freezing.Unlock()
	if b.isFrozen == freeze {
		return nil
	}
	if freeze {
		b.turn.Lock()
	} else {
		b.turn.Unlock()
	}
	b.isFrozen = freeze
	return nil
}

// frozen reports whether the sandbox is frozen.
func (b *instance) frozen() bool {
	b.freezing.Lock()
	defer b.freezing.Unlock()
	return b.isFrozen
}

// releasePrograms thaws an ended sandbox, so that its programs notice its end.
func (b *instance) releasePrograms() {
	b.freezing.Lock()
	defer b.freezing.Unlock()
	if b.isFrozen {
		b.turn.Unlock()
	}
	b.isFrozen = false
}

// pausedState returns the state at a moment when no program runs. It first writes the events of
// changes, because a sandbox that is restored from the state does not write them.
func (b *instance) pausedState() (saved, error) {
	b.freezing.Lock()
	defer b.freezing.Unlock()
	if b.isFrozen {
		return saved{}, engine.Frozen(b.id)
	}
	b.turn.Lock()
	defer b.turn.Unlock()
	if err := b.recordChanges(); err != nil {
		return saved{}, err
	}
	state := b.state.copy()
	for l := range b.loops {
		state.Loops = append(state.Loops, loop{l.Source, maps.Clone(l.Variables), l.User, l.Cwd})
	}
	return state, nil
}

package fake

import (
	"context"
	"maps"

	"github.com/crannog/crannog/internal/engine"
)

// Freeze implements engine.Freezer. Every command of the sandbox's programs waits until Thaw.
func (e *Programs) Freeze(ctx context.Context, id string) error {
	return e.hold(ctx, id, true)
}

// Thaw implements engine.Freezer.
func (e *Programs) Thaw(ctx context.Context, id string) error {
	return e.hold(ctx, id, false)
}

func (e *Engine) hold(ctx context.Context, id string, hold bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	b := e.find(id)
	if b == nil || !b.running() {
		return unknown(id)
	}
	b.holding.Lock()
	defer b.holding.Unlock()
	if b.held == hold {
		return nil
	}
	if hold {
		b.turn.Lock()
	} else {
		b.turn.Unlock()
	}
	b.held = hold
	return nil
}

func (b *instance) frozen() bool {
	b.holding.Lock()
	defer b.holding.Unlock()
	return b.held
}

// release lets programs see that their sandbox has ended.
func (b *instance) release() {
	b.holding.Lock()
	defer b.holding.Unlock()
	if b.held {
		b.turn.Unlock()
	}
	b.held = false
}

// frozenState returns the state while no program runs. It first writes the events of changes,
// because a copy does not write them.
func (b *instance) frozenState() (saved, error) {
	b.holding.Lock()
	defer b.holding.Unlock()
	if b.held {
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

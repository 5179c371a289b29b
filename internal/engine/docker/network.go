package docker

import (
	"context"

	"github.com/crannog/crannog/internal/engine"
)

// egressKinds are the ways in which this engine connects a sandbox.
func (e *Engine) egressKinds() []engine.EgressKind { return []engine.EgressKind{engine.EgressNone} }

// connect gives a container its network attachment.
func (e *Engine) connect(context.Context, string, engine.Egress) error { return nil }

package v1

import (
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
)

// Pruner removes the rows of ended sandboxes.
type Pruner interface {
	Prune(ctx context.Context, caller sandbox.Principal) (lifecycle.Pruned, error)
}

// pruneHandlers serves the removal of ended sandboxes.
type pruneHandlers struct{ pruner Pruner }

func (h *pruneHandlers) register(r *registry) {
	register(r, op("prune", "POST", "/prune", "Remove ended sandboxes"), h.prune)
}

type pruneOutput struct{ Body api.Pruned }

func (h *pruneHandlers) prune(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*pruneOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	gone, err := h.pruner.Prune(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := &pruneOutput{api.Pruned{Removed: make([]string, 0, len(gone.Sandboxes)), FreedBytes: gone.Freed}}
	for _, sb := range gone.Sandboxes {
		out.Body.Removed = append(out.Body.Removed, sb.ID)
	}
	return out, nil
}

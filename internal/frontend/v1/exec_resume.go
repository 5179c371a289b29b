package v1

import (
	"context"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// runnable returns a sandbox that can run a command now. It waits for a sandbox that is being
// resumed, and resumes a paused sandbox that resumes on traffic, because a command is traffic too.
func (h *execHandlers) runnable(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	sb, err := h.finder.Get(ctx, caller, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	saved := sb.State == sandbox.Pausing || sb.State == sandbox.Paused
	switch {
	case sb.State == sandbox.Running:
		return sb, nil
	case h.states != nil && (sb.State == sandbox.Resuming || saved && sb.OnEnd.Wake):
		sb, _, err = h.states.Resume(ctx, caller, sb.ID, 0)
		return sb, err
	case saved:
		return sandbox.Sandbox{}, fault.Newf(fault.Conflict, "sandbox_paused", "sandbox %s is %s", sb.ID, sb.State).
			WithHint("resume it first")
	}
	return sandbox.Sandbox{}, fault.Newf(fault.Conflict, "not_running", "sandbox %s is %s", sb.ID, sb.State)
}

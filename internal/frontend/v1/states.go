package v1

import (
	"context"
	"log/slog"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// States pauses, resumes, copies and restores sandboxes.
type States interface {
	// Pause saves a running sandbox and ends its processes. With filesOnly the sandbox boots again
	// when it is resumed. For a paused sandbox the error is a Conflict with the code
	// "sandbox_paused".
	Pause(ctx context.Context, caller sandbox.Principal, ref string, filesOnly bool) (sandbox.Sandbox, error)
	// Resume resumes a paused sandbox for d, and reports whether it was paused. Zero means the
	// lifetime with which the sandbox was created. It does not change a running sandbox. It waits
	// for a pause or resume in progress.
	Resume(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error)
	// ResumeFiles is like Resume, but boots the sandbox again with its files, even if its memory
	// and processes were saved.
	ResumeFiles(ctx context.Context, caller sandbox.Principal, ref string, d time.Duration) (sandbox.Sandbox, bool, error)
	// Fork copies a running sandbox. The error applies to all copies. Each copy also has its own
	// error.
	Fork(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ForkRequest) ([]sandbox.Fork, error)
	// Rollback restores a running or paused sandbox in place to a snapshot that the caller may use.
	Rollback(ctx context.Context, caller sandbox.Principal, ref, snapshot string) (sandbox.Sandbox, error)
	// Reset restores a sandbox in place to the template or snapshot from which it was created.
	Reset(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.Sandbox, error)
}

// stateHandlers serves the states of sandboxes.
type stateHandlers struct {
	states States
	log    *slog.Logger
}

// register adds the operations, which may take long. A client that closes its request cancels work
// that has not begun.
func (h *stateHandlers) register(r *registry) {
	if h.states == nil {
		return
	}
	register(r, op("sandboxes-pause", "POST", "/sandboxes/{id}/pause", "Pause a sandbox: save its state and end its processes"), h.pause)
	register(r, op("sandboxes-resume", "POST", "/sandboxes/{id}/resume", "Resume a paused sandbox"), h.resume)
	register(r, created(op("sandboxes-fork", "POST", "/sandboxes/{id}/fork", "Copy a running sandbox with its memory, or only its files")), h.fork)
	register(r, op("sandboxes-rollback", "POST", "/sandboxes/{id}/rollback", "Roll a sandbox back to a snapshot, in place"), h.rollback)
	register(r, op("sandboxes-reset", "POST", "/sandboxes/{id}/reset", "Reset a sandbox to its initial state, in place"), h.reset)
}

func toOnEnd(o sandbox.OnEnd) *api.OnEnd {
	if o == (sandbox.OnEnd{}) {
		return nil
	}
	return &api.OnEnd{Pause: o.Pause, FilesOnly: o.FilesOnly, Wake: o.Wake}
}

func fromOnEnd(in *api.OnEnd) sandbox.OnEnd {
	if in == nil {
		return sandbox.OnEnd{}
	}
	return sandbox.OnEnd{Pause: in.Pause, FilesOnly: in.FilesOnly, Wake: in.Wake}
}

type pauseInput struct {
	Ref
	Body *api.Pause
}

func (h *stateHandlers) pause(ctx context.Context, caller sandbox.Principal, in *pauseInput) (*sandboxBody, error) {
	return sandboxFor(caller)(h.states.Pause(ctx, caller, in.ID, orZero(in.Body).FilesOnly))
}

type resumeInput struct {
	Ref
	Body *api.Resume
}

func (h *stateHandlers) resume(ctx context.Context, caller sandbox.Principal, in *resumeInput) (*sandboxBody, error) {
	d, err := duration("timeout_seconds", orZero(in.Body).TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	resume := h.states.Resume
	if orZero(in.Body).FilesOnly {
		resume = h.states.ResumeFiles
	}
	sb, _, err := resume(ctx, caller, in.ID, d)
	return sandboxFor(caller)(sb, err)
}

type rollbackInput struct {
	Ref
	Body api.Rollback
}

func (h *stateHandlers) rollback(ctx context.Context, caller sandbox.Principal, in *rollbackInput) (*sandboxBody, error) {
	return sandboxFor(caller)(h.states.Rollback(ctx, caller, in.ID, in.Body.Snapshot))
}

func (h *stateHandlers) reset(ctx context.Context, caller sandbox.Principal, in *Ref) (*sandboxBody, error) {
	return sandboxFor(caller)(h.states.Reset(ctx, caller, in.ID))
}

// sandboxFor converts a sandbox for its caller.
func sandboxFor(caller sandbox.Principal) func(sandbox.Sandbox, error) (*sandboxBody, error) {
	return func(sb sandbox.Sandbox, err error) (*sandboxBody, error) {
		if err != nil {
			return nil, err
		}
		return &sandboxBody{withTokens(caller, toSandbox(sb), sb)}, nil
	}
}

// orZero returns the body, or an empty one if none was sent.
func orZero[T any](body *T) T {
	if body == nil {
		return *new(T)
	}
	return *body
}

type forkInput struct {
	Ref
	Body *api.CreateFork
}

type forksOutput struct{ Body api.ForkList }

func (h *stateHandlers) fork(ctx context.Context, caller sandbox.Principal, in *forkInput) (*forksOutput, error) {
	body := orZero(in.Body)
	d, err := duration("timeout_seconds", body.TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	forks, err := h.states.Fork(ctx, caller, in.ID, sandbox.ForkRequest{
		Count: max(body.Count, 1), Timeout: d, Forever: body.Forever, Ephemeral: body.Ephemeral, FilesOnly: body.FilesOnly,
	})
	if err != nil {
		return nil, err
	}
	out := &forksOutput{api.ForkList{Forks: make([]api.Fork, 0, len(forks))}}
	for _, f := range forks {
		out.Body.Forks = append(out.Body.Forks, h.toFork(ctx, caller, f))
	}
	return out, nil
}

// toFork converts a copy's own error to the form of an error answer.
func (h *stateHandlers) toFork(ctx context.Context, caller sandbox.Principal, f sandbox.Fork) api.Fork {
	if f.Err != nil {
		logInternal(ctx, h.log, "fork", f.Err)
		return api.Fork{Error: &problemOf(f.Err).Problem}
	}
	out := withTokens(caller, toSandbox(f.Sandbox), f.Sandbox)
	return api.Fork{Sandbox: &out}
}

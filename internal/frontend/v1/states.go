package v1

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// stateRoutes may take long. Who closes the request takes back what has not
// happened yet.
func (s *server) stateRoutes(a huma.API) {
	if s.States == nil {
		return
	}
	register(s, a, op("sandboxes-pause", "POST", "/sandboxes/{id}/pause", "Write a sandbox down and end its processes"), s.pause)
	register(s, a, op("sandboxes-resume", "POST", "/sandboxes/{id}/resume", "Let a paused sandbox go on where it was"), s.resume)
	register(s, a, created(op("sandboxes-fork", "POST", "/sandboxes/{id}/fork", "Copy a running sandbox as it is now")), s.fork)
	register(s, a, op("sandboxes-rollback", "POST", "/sandboxes/{id}/rollback", "Put a sandbox back to a snapshot, in place"), s.rollback)
	register(s, a, op("sandboxes-reset", "POST", "/sandboxes/{id}/reset", "Put a sandbox back to its start, in place"), s.reset)
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

func (s *server) pause(ctx context.Context, who sandbox.Principal, in *pauseInput) (*sandboxBody, error) {
	return answer(who)(s.States.Pause(ctx, who, in.ID, orZero(in.Body).FilesOnly))
}

type resumeInput struct {
	Ref
	Body *api.Resume
}

func (s *server) resume(ctx context.Context, who sandbox.Principal, in *resumeInput) (*sandboxBody, error) {
	d, err := duration("timeout_seconds", orZero(in.Body).TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	resume := s.States.Resume
	if orZero(in.Body).FilesOnly {
		resume = s.States.ResumeFiles
	}
	sb, _, err := resume(ctx, who, in.ID, d)
	return answer(who)(sb, err)
}

type rollbackInput struct {
	Ref
	Body api.Rollback
}

func (s *server) rollback(ctx context.Context, who sandbox.Principal, in *rollbackInput) (*sandboxBody, error) {
	return answer(who)(s.States.Rollback(ctx, who, in.ID, in.Body.Snapshot))
}

func (s *server) reset(ctx context.Context, who sandbox.Principal, in *Ref) (*sandboxBody, error) {
	return answer(who)(s.States.Reset(ctx, who, in.ID))
}

// answer shows a sandbox to a caller.
func answer(who sandbox.Principal) func(sandbox.Sandbox, error) (*sandboxBody, error) {
	return func(sb sandbox.Sandbox, err error) (*sandboxBody, error) {
		if err != nil {
			return nil, err
		}
		return &sandboxBody{withTokens(who, toSandbox(sb), sb)}, nil
	}
}

// orZero is the body, or an empty one if none was sent.
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

func (s *server) fork(ctx context.Context, who sandbox.Principal, in *forkInput) (*forksOutput, error) {
	body := orZero(in.Body)
	d, err := duration("timeout_seconds", body.TimeoutSeconds)
	if err != nil {
		return nil, err
	}
	forks, err := s.States.Fork(ctx, who, in.ID, sandbox.ForkRequest{
		Count: max(body.Count, 1), Timeout: d, Forever: body.Forever, Ephemeral: body.Ephemeral,
	})
	if err != nil {
		return nil, err
	}
	out := &forksOutput{api.ForkList{Forks: make([]api.Fork, 0, len(forks))}}
	for _, f := range forks {
		out.Body.Forks = append(out.Body.Forks, s.toFork(ctx, who, f))
	}
	return out, nil
}

// toFork shows a copy's own error as an answer of its own would.
func (s *server) toFork(ctx context.Context, who sandbox.Principal, f sandbox.Fork) api.Fork {
	if f.Err != nil {
		s.logInternal(ctx, "fork", f.Err)
		return api.Fork{Error: &problemOf(f.Err).Problem}
	}
	out := withTokens(who, toSandbox(f.Sandbox), f.Sandbox)
	return api.Fork{Sandbox: &out}
}

// awake finds a sandbox that can run a command now. One that is on its way
// back is waited for, and one that traffic resumes is resumed: a command is
// traffic too.
func (s *server) awake(ctx context.Context, who sandbox.Principal, ref string) (sandbox.Sandbox, error) {
	sb, err := s.Sandboxes.Get(ctx, who, ref)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	saved := sb.State == sandbox.Pausing || sb.State == sandbox.Paused
	switch {
	case sb.State == sandbox.Running:
		return sb, nil
	case s.States != nil && (sb.State == sandbox.Resuming || saved && sb.OnEnd.Wake):
		sb, _, err = s.States.Resume(ctx, who, sb.ID, 0)
		return sb, err
	case saved:
		return sandbox.Sandbox{}, fault.Newf(fault.Conflict, "sandbox_paused", "sandbox %s is %s", sb.ID, sb.State).
			WithHint("resume it first")
	}
	return sandbox.Sandbox{}, fault.Newf(fault.Conflict, "not_running", "sandbox %s is %s", sb.ID, sb.State)
}

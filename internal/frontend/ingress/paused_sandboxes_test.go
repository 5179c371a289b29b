package ingress_test

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// pause pauses a sandbox as the service does: its streams are closed, and it is not live until Wake
// resumes it.
func (in *inside) pause(id string) {
	in.mu.Lock()
	b := in.sandboxes[id]
	in.paused[id] = b
	b.State = sandbox.Paused
	in.mu.Unlock()
	in.kill(id)
}

// resumesOnTraffic makes traffic resume a sandbox.
func resumesOnTraffic(s *sandbox.Sandbox) { s.OnEnd = sandbox.OnEnd{Pause: true, Wake: true} }

func (in *inside) ResumesOnTraffic(_ context.Context, id string) (sandbox.Sandbox, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	b, ok := in.paused[id]
	if !ok || !b.OnEnd.Wake {
		return sandbox.Sandbox{}, false
	}
	return b.Sandbox, true
}

func (in *inside) AllResumingOnTraffic(_ context.Context, yield func(sandbox.Sandbox) bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, b := range in.paused {
		if b.OnEnd.Wake && !yield(b.Sandbox) {
			return
		}
	}
}

func (in *inside) Wake(_ context.Context, id string) (sandbox.Sandbox, error) {
	in.mu.Lock()
	in.resumed = append(in.resumed, id)
	beforeResume := in.beforeResume
	in.mu.Unlock()
	if beforeResume != nil {
		if err := beforeResume(id); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	b, ok := in.paused[id]
	if !ok {
		return sandbox.Sandbox{}, fault.New(fault.NotFound, "sandbox_not_found", "no such sandbox")
	}
	delete(in.paused, id)
	b.State, b.gone = sandbox.Running, make(chan struct{})
	in.sandboxes[id] = b
	return b.Sandbox, nil
}

// wakes returns the IDs of the sandboxes that were resumed so far.
func (in *inside) wakes() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.resumed)
}

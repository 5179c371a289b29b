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
	b := in.boxes[id]
	in.beds[id] = b
	b.State = sandbox.Paused
	in.mu.Unlock()
	in.kill(id)
}

// wakeful lets traffic resume a sandbox.
func wakeful(s *sandbox.Sandbox) { s.OnEnd = sandbox.OnEnd{Pause: true, Wake: true} }

func (in *inside) ResumesOnTraffic(_ context.Context, id string) (sandbox.Sandbox, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	b, ok := in.beds[id]
	if !ok || !b.OnEnd.Wake {
		return sandbox.Sandbox{}, false
	}
	return b.Sandbox, true
}

func (in *inside) AllResumingOnTraffic(_ context.Context, yield func(sandbox.Sandbox) bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, b := range in.beds {
		if b.OnEnd.Wake && !yield(b.Sandbox) {
			return
		}
	}
}

func (in *inside) Wake(_ context.Context, id string) (sandbox.Sandbox, error) {
	in.mu.Lock()
	in.resumed = append(in.resumed, id)
	rouse := in.beforeResume
	in.mu.Unlock()
	if rouse != nil {
		if err := rouse(id); err != nil {
			return sandbox.Sandbox{}, err
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	b, ok := in.beds[id]
	if !ok {
		return sandbox.Sandbox{}, fault.New(fault.NotFound, "sandbox_not_found", "no such sandbox")
	}
	delete(in.beds, id)
	b.State, b.gone = sandbox.Running, make(chan struct{})
	in.boxes[id] = b
	return b.Sandbox, nil
}

// wakes is the number of resumes so far.
func (in *inside) wakes() []string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.resumed)
}

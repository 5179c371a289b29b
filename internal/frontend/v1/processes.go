package v1

import (
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/guest/census"
	"github.com/crannog/crannog/internal/sandbox"
)

type processesOutput struct{ Body api.ProcessList }

// processes lists the processes of a sandbox, as the sandbox reports them.
func (h *sandboxHandlers) processes(ctx context.Context, caller sandbox.Principal, in *Ref) (*processesOutput, error) {
	c, err := h.monitor.Census(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	out := &processesOutput{api.ProcessList{Processes: make([]api.Process, 0, len(c.Processes)), Cut: c.Cut}}
	for _, p := range c.Processes {
		out.Body.Processes = append(out.Body.Processes, toProcess(p))
	}
	return out, nil
}

func toProcess(p census.Process) api.Process {
	out := api.Process{
		PID: p.PID, Parent: p.Parent, User: p.User, UID: p.UID, Args: p.Args,
		CPUSeconds: p.CPU.Seconds(), MemoryBytes: p.Memory,
	}
	if out.Args == nil {
		out.Args = []string{}
	}
	if c := p.Command; c != nil {
		out.Command = &api.ProcessCommand{PID: c.PID, Args: c.Args, Tag: c.Tag, Ended: c.Ended}
	}
	return out
}

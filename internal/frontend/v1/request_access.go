package v1

import (
	"context"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

type askAccessInput struct {
	Ref
	Body api.AskAccess
}

type askAccessOutput struct{ Body api.AskedAccess }

// defaultPort is the default port of a host.
const defaultPort = 443

func (h *accessHandlers) askAccess(ctx context.Context, caller sandbox.Principal, in *askAccessInput) (*askAccessOutput, error) {
	w := sandbox.HostRequest{
		Host: in.Body.Host, Port: in.Body.Port, Reason: in.Body.Reason,
		Wait: time.Duration(in.Body.WaitSeconds * float64(time.Second)),
	}
	if w.Port == 0 {
		w.Port = defaultPort
	}
	outcome, err := h.access.AskAccess(ctx, caller, in.ID, w)
	if err != nil {
		return nil, err
	}
	return &askAccessOutput{api.AskedAccess{State: outcome.State, Approval: outcome.Approval, Reason: outcome.Reason}}, nil
}

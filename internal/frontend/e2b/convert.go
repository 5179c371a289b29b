package e2b

import (
	"context"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

func (a *api) domain() *string {
	if a.Domain == "" {
		return nil
	}
	return &a.Domain
}

// sandboxBody returns the body for create and connect. It always contains the access token, because
// a signed file URL does not name its sandbox: it is routed by the token that signed it.
func (a *api) sandboxBody(s sandbox.Sandbox) sandboxBody {
	body := sandboxBody{
		SandboxID:       s.ID,
		TemplateID:      s.TemplateID,
		ClientID:        clientID,
		EnvdVersion:     envdVersion,
		Alias:           s.Template,
		EnvdAccessToken: s.AccessToken,
		Domain:          a.domain(),
	}
	if s.TrafficToken != "" {
		body.TrafficAccessToken = &s.TrafficToken
	}
	return body
}

func listedBodyOf(s sandbox.Sandbox) listedBody {
	limits := s.Limits.Limits.OrDefault()
	return listedBody{
		SandboxID:    s.ID,
		TemplateID:   s.TemplateID,
		ClientID:     clientID,
		Alias:        s.Template,
		StartedAt:    wireTime(s.StartedAt),
		EndAt:        wireTime(endOf(s)),
		State:        stateOf(s),
		CPUCount:     wholeCPUs(s.Limits.Limits),
		MemoryMB:     limits.MemoryBytes >> 20,
		DiskSizeMB:   limits.DiskBytes >> 20,
		EnvdVersion:  envdVersion,
		Metadata:     s.Metadata,
		VolumeMounts: volumeMounts(s),
	}
}

func (a *api) detailBody(ctx context.Context, caller sandbox.Principal, s sandbox.Sandbox) (detailBody, error) {
	internet, network, err := a.networkOf(ctx, caller, s)
	return detailBody{
		listedBody:          listedBodyOf(s),
		EnvdAccessToken:     s.AccessToken,
		Domain:              a.domain(),
		AllowInternetAccess: internet,
		Network:             network,
		Lifecycle:           lifecycleOf(s.OnEnd),
		Limits:              limitsOf(s.Limits),
	}, err
}

// wireTime returns the time in UTC with microseconds, the finest resolution of the clients'
// languages. The same time always has the same text.
func wireTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// noEnd represents a sandbox without an end, which the API cannot express. It is the last second of
// the year 9999, which every client can parse.
var noEnd = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// endOf returns when a sandbox ends or, if it is paused, when it was paused.
func endOf(s sandbox.Sandbox) time.Time {
	if s.State != sandbox.Running && !s.PausedAt.IsZero() {
		return s.PausedAt
	}
	if s.EndAt.IsZero() {
		return noEnd
	}
	return s.EndAt
}

func lifecycleOf(e sandbox.OnEnd) lifecycleBody {
	if e.Pause {
		return lifecycleBody{OnTimeout: "pause", AutoResume: e.Wake}
	}
	return lifecycleBody{OnTimeout: "kill", AutoResume: e.Wake}
}

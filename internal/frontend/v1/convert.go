package v1

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
)

// maxSeconds is ten years, far from an overflow.
const maxSeconds = 10 * 365 * 24 * 3600

// duration converts a duration. Zero stays zero, which means the default and never unlimited.
func duration(field string, seconds float64) (time.Duration, error) {
	if math.IsNaN(seconds) || seconds < 0 || seconds > maxSeconds {
		return 0, fault.Newf(fault.Invalid, "invalid_duration", "%s must be between 0 and %d", field, maxSeconds)
	}
	d := time.Duration(seconds * float64(time.Second))
	if seconds > 0 && d < time.Millisecond {
		return time.Millisecond, nil
	}
	return d, nil
}

func fromLimits(l *api.Limits) (sandbox.Limits, error) {
	if l == nil {
		return sandbox.Limits{}, nil
	}
	timeout, err := duration("limits.command_timeout_seconds", l.CommandTimeoutSeconds)
	if err != nil {
		return sandbox.Limits{}, err
	}
	return sandbox.Limits{
		Limits: engine.Limits{
			MemoryBytes: l.MemoryBytes, MilliCPU: l.CPUMillis, PIDs: l.PIDs,
			DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes, ShmBytes: l.ShmBytes,
		},
		CommandTimeout: timeout,
		OutputBytes:    l.OutputBytes,
	}, nil
}

func toLimits(l sandbox.Limits) api.Limits {
	return api.Limits{
		MemoryBytes: l.MemoryBytes, CPUMillis: l.MilliCPU, PIDs: l.PIDs,
		DiskBytes: l.DiskBytes, DiskInodes: l.DiskInodes, ShmBytes: l.ShmBytes,
		CommandTimeoutSeconds: l.CommandTimeout.Seconds(), OutputBytes: l.OutputBytes,
	}
}

func fromCreate(in api.CreateSandbox) (sandbox.CreateRequest, error) {
	timeout, err := duration("timeout_seconds", in.TimeoutSeconds)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	limits, err := fromLimits(in.Limits)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	template, image, err := startOf(in)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	access, err := fromAccess(in.Access)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	return sandbox.CreateRequest{
		Access: access, OnEnd: fromOnEnd(in.OnEnd), Template: template, Image: image, Name: in.Name, Timeout: timeout, Forever: in.Forever, Ephemeral: in.Ephemeral,
		Metadata: in.Metadata, Env: in.Env, Limits: limits, Engine: engineOf(in.Engine), AtLeast: engine.Boundary(in.AtLeast), Workspace: in.Workspace, Programs: in.Programs, Tools: in.Tools,
		Mounts: fromMounts(in.Mounts), Volumes: fromVolumeMounts(in.Volumes),
		Containers: in.Containers, PrivatePorts: in.PrivatePorts, MaskRequestHost: in.MaskRequestHost, RequestID: in.RequestID,
	}, nil
}

// engineOf returns the engine that a request names, or "" if it leaves the choice to the server.
func engineOf(name string) string {
	if name == engine.Auto {
		return ""
	}
	return name
}

// toSandbox converts a sandbox for lists: without tokens.
func toSandbox(sb sandbox.Sandbox) api.Sandbox {
	enforced := []string{"command_timeout", "output"}
	for _, l := range sb.Enforced {
		enforced = append(enforced, string(l))
	}
	slices.Sort(enforced)
	return api.Sandbox{
		ID: sb.ID, Name: sb.Name, Template: sb.Template, ImageDigest: sb.ImageDigest, TemplateID: sb.TemplateID,
		State: string(sb.State), Reason: sb.Reason, Owner: sb.Owner, Ephemeral: sb.Ephemeral,
		StartedAt: sb.StartedAt, EndsAt: timeOrNil(sb.EndAt), StoppedAt: timeOrNil(sb.StoppedAt),
		PausedAt: timeOrNil(sb.PausedAt), OnEnd: toOnEnd(sb.OnEnd), Origin: sb.Origin, At: sb.At, Parent: sb.Parent,
		Metadata: sb.Metadata, EnvNames: slices.Sorted(maps.Keys(sb.Env)),
		Workspace: sb.Workspace, Mounts: toMounts(sb.Mounts), Volumes: toVolumeMounts(sb.Volumes), Notes: sb.Notes, MaskRequestHost: sb.MaskRequestHost,
		Engine: sb.Engine, Boundary: string(sb.Boundary), Containers: sb.Containers, Unseen: sb.Unseen, Saves: sb.Saves,
		Effective: api.Effective{Limits: toLimits(sb.Limits), Enforced: enforced, Checks: toChecks(sb)},
		Network:   toNetwork(sb), HiddenTracked: toTracked(sb.Tracked), Tools: toTools(sb.Tools), Keys: toKeys(sb),
		HostFiles: toHostFiles(sb.Needs),
	}
}

func toKeys(sb sandbox.Sandbox) *api.WorkspaceKeys {
	if sb.Workspace == "" || sb.Keys.Looked+sb.Keys.Left == 0 {
		return nil
	}
	k := &api.WorkspaceKeys{Count: sb.Keys.Count, Inspected: sb.Keys.Looked, Looked: sb.Keys.Looked, Left: sb.Keys.Left}
	for _, f := range sb.Keys.Files {
		k.Files = append(k.Files, api.KeyFile{Name: f.Name, Kinds: f.Kinds})
	}
	return k
}

func toTools(tools []sandbox.Tool) (shown []api.Tool) {
	for _, t := range tools {
		shown = append(shown, api.Tool{Manager: t.Manager, Dir: t.Dir, Bin: t.Bin})
	}
	return shown
}

func fromMounts(list []api.Mount) (out []sandbox.Mount) {
	for _, m := range list {
		out = append(out, sandbox.Mount(m))
	}
	return out
}

func toMounts(list []sandbox.Mount) (out []api.Mount) {
	for _, m := range list {
		to := api.Mount(m)
		if m.Name != "" {
			to.Source = "" // only local callers learn the path on the host
		}
		out = append(out, to)
	}
	return out
}

func toTracked(t sandbox.Tracked) *api.HiddenTracked {
	if t.Count == 0 {
		return nil
	}
	return &api.HiddenTracked{Count: t.Count, Names: t.Names, Without: t.Without}
}

// withTokens adds the tokens, for answers about one sandbox. A paused sandbox keeps its tokens,
// which a stream that resumes it needs.
func withTokens(caller sandbox.Principal, out api.Sandbox, sb sandbox.Sandbox) api.Sandbox {
	addFiles(out.HostFiles, sb.Needs)
	if caller.Tokenless {
		return out
	}
	switch sb.State {
	case sandbox.Running, sandbox.Pausing, sandbox.Paused, sandbox.Resuming:
		out.AccessToken, out.TrafficToken = sb.AccessToken, sb.TrafficToken
	case sandbox.Creating, sandbox.Waiting, sandbox.Stopping, sandbox.Stopped:
	}
	return out
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func toMetric(m sandbox.Metric) api.Metric {
	return api.Metric{
		At: m.At, CPUCount: m.CPUCount, CPUPercent: m.CPUPercent,
		MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal, PIDs: m.PIDs,
	}
}

func toLog(e sandbox.LogEntry) api.LogEntry {
	return api.LogEntry{At: e.At, Level: e.Level, Message: e.Message, Fields: e.Fields}
}

func toKey(k key.Key) api.Key {
	return api.Key{ID: k.ID, Name: k.Name, Opens: string(k.Opens), CreatedAt: k.Created, LastUsedAt: timeOrNil(k.LastUsed)}
}

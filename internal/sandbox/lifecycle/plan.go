package lifecycle

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/access"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
)

// planner decides the template, mounts, limits and policy of a sandbox. It changes nothing.
type planner struct {
	settings  sandbox.Settings
	engines   engines
	access    *access.Service
	templates sandbox.Templates
	states    *savedstate.Service
	snapshots snapshotFinder
	room      diskroom.Check
	volumes   sandbox.Volumes // nil means none
	self      sandbox.Process
}

// plan checks a request, and returns the row, the template and the policy of its sandbox. It
// changes nothing.
func (pl *planner) plan(ctx context.Context, caller sandbox.Principal, req sandbox.CreateRequest) (sandbox.Row, sandbox.Template, *policy.Policy, error) {
	for _, check := range []func() error{
		caller.Check,
		func() error { return checkLocal(caller, req) },
		func() error { return checkName(req.Name) },
		func() error { return checkRequestID(req.RequestID) },
		func() error { return checkMetadata(req.Metadata) },
		func() error { return checkEnv(req.Env) },
		func() error { return checkMaskRequestHost(req.MaskRequestHost) },
	} {
		if err := check(); err != nil {
			return sandbox.Row{}, sandbox.Template{}, nil, err
		}
	}
	ttl, err := pl.lifetime(caller, req)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	workspace, err := rootfs.ResolveWorkspace(req.Workspace)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	template, templateName, err := pl.startsFrom(ctx, caller, req)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	asked := req
	if req, err = withDefaults(caller, req, template); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	template = pl.withMemory(ctx, req, template)
	if err := checkReferences(caller, req.Access, accessOf(template)); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if workspace, err = template.Origin.WorkspaceFor(req.Limits, workspace); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if req, err = pl.resolveVolumes(caller, req); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	mounts, err := rootfs.ResolveMounts(pl.settings, req.Mounts)
	if err == nil && len(mounts)+len(req.Volumes) > 0 && template.Origin != nil {
		err = fault.New(fault.Invalid, "snapshot_mounts", "the mounts and volumes of a snapshot cannot be changed").WithHint("omit the mounts and volumes")
	}
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	programs, err := rootfs.ResolvePrograms(req.Programs)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	compiled, err := pl.access.Compile(req.Access)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if addsRepository(template, workspace, compiled.Files().Matcher()) {
		asked.Boots = true
		return pl.plan(ctx, caller, asked)
	}
	if req.Containers, err = containersOf(req, template, compiled); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	limits, err := pl.limits(req.Limits)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	chosen, note, err := pl.engines.chooseEngine(req, compiled, template)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	info := chosen.Info()
	template = template.On(info.Images)
	if err := template.Image.Check(info.Images); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if err := rootfs.AddPrograms(&template, programs); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if err := pl.checkOnEnd(req.OnEnd, info.Name); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	template.Origin.Inherit(&limits, req.Limits)
	if limits, err = enforceable(limits, req.Limits, info); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	tools, err := rootfs.ResolveTools(pl.settings, req.Tools, compiled, template.Origin)
	if err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	if err := rootfs.AddTools(&template, tools); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	var base sandbox.Base
	if o := template.Origin; o != nil {
		base = base.WithMountsOf(o.Base)
		base.Copy = ""
	} else {
		match := compiled.Files().Matcher()
		if err := rootfs.AddMounts(&base, mounts, template.Image, match); err != nil {
			return sandbox.Row{}, sandbox.Template{}, nil, err
		}
		if err := rootfs.AddVolumes(&base, req.Volumes, template.Image, compiled); err != nil {
			return sandbox.Row{}, sandbox.Template{}, nil, err
		}
		rootfs.AddRepository(&base, workspace, template.Image, match)
		base.TakesWorkspace = req.ForMemory && workspace == "" && mayTakeWorkspace(template, info)
	}
	base.Containers = req.Containers
	base.Unseen = info.Unseen
	if note != "" {
		base.Notes = append(slices.Clone(base.Notes), note)
	}
	req.Access = access.NameValues(req.Access.Resolved())
	r := sandbox.Row{ControlToken: ids.NewToken(), Process: pl.self, Run: 1, CreateTimeout: ttl, Base: base, Sandbox: sandbox.Sandbox{
		ID: newID(), Name: req.Name, TemplateID: template.ID, Template: templateName, State: sandbox.Creating, OnEnd: req.OnEnd,
		Owner: caller.KeyID, Ephemeral: req.Ephemeral, StartedAt: time.Now().UTC().Round(0),
		Metadata: maps.Clone(req.Metadata), Env: maps.Clone(req.Env), Limits: limits,
		AccessToken: ids.NewToken(), MaskRequestHost: req.MaskRequestHost, Workspace: workspace,
		Engine: info.Name, Boundary: info.Boundary, Enforced: info.Enforces,
		Access: req.Access, PolicyLevel: compiled.Level(), PolicyDigest: compiled.Digest(),
	}}
	if o := template.Origin; o != nil {
		r.Origin, r.At = o.ID, o.ID
		if template.OwnMemory() == "" {
			r.Template = o.Template
		}
	}
	if req.PrivatePorts {
		r.TrafficToken = ids.NewToken()
	}
	if ttl > 0 {
		r.EndAt = r.StartedAt.Add(ttl)
	}
	if err := readLockfiles(ctx, &r, compiled); err != nil {
		return sandbox.Row{}, sandbox.Template{}, nil, err
	}
	return r, template, compiled, nil
}

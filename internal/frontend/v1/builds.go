package v1

import (
	"context"
	"log/slog"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
)

// Builds makes images from Dockerfiles.
type Builds interface {
	Create(ctx context.Context, caller sandbox.Principal, req build.Request) (build.Record, []dockerfile.Warning, error)
	Upload(ctx context.Context, caller sandbox.Principal, id string, offset int64, data []byte) error
	Run(ctx context.Context, caller sandbox.Principal, id string, report func(solve.Event)) (library.Image, error)
	Cancel(ctx context.Context, caller sandbox.Principal, id string) error
	List(caller sandbox.Principal) ([]build.Record, error)
	Get(caller sandbox.Principal, id string) (build.Record, error)
}

type buildHandlers struct {
	builds Builds
	log    *slog.Logger
}

func (h *buildHandlers) register(r *registry) {
	if h.builds == nil {
		return
	}
	register(r, created(op("builds-create", "POST", "/builds", "Start a build of an image from a Dockerfile")), h.create)
	register(r, empty(op("builds-context", "PUT", "/builds/{id}/context", "Send a piece of the context, a tar")), h.upload)
	register(r, op("builds-run", "POST", "/builds/{id}/run", "Run the build, with lines of progress; closing the connection cancels it"), h.run)
	register(r, empty(op("builds-cancel", "DELETE", "/builds/{id}", "Cancel a build")), h.cancel)
	register(r, op("builds-list", "GET", "/builds", "List builds, newest first"), h.list)
	register(r, op("builds-get", "GET", "/builds/{id}", "Describe a build"), h.get)
}

type createBuildInput struct{ Body api.CreateBuild }

type buildOutput struct{ Body api.Build }

func (h *buildHandlers) create(ctx context.Context, caller sandbox.Principal, in *createBuildInput) (*buildOutput, error) {
	b := in.Body
	access := sandbox.Access{Net: sandbox.NetDev}
	if b.Access != nil {
		var err error
		if access, err = fromAccess(b.Access); err != nil {
			return nil, err
		}
	}
	req := build.Request{
		Tag: b.Tag, Dockerfile: []byte(b.Dockerfile), Target: b.Target, Platform: b.Platform, Args: b.Args, Secrets: b.Secrets,
		NoCache: b.NoCache, Push: b.Push, Provenance: b.Provenance, Access: access,
	}
	if b.Epoch > 0 {
		req.Epoch = time.Unix(b.Epoch, 0).UTC()
	}
	var err error
	if req.Limits, err = fromLimits(b.Limits); err != nil {
		return nil, err
	}
	r, warnings, err := h.builds.Create(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	out := toBuild(r)
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, api.BuildWarning{Line: w.Line, Rule: w.Rule, Text: w.Text})
	}
	return &buildOutput{out}, nil
}

// BuildRef names a build in the path.
type BuildRef struct {
	ID string `path:"id" maxLength:"40"`
}

type buildContextInput struct {
	BuildRef
	Body api.BuildContext
}

func (h *buildHandlers) upload(ctx context.Context, caller sandbox.Principal, in *buildContextInput) (*struct{}, error) {
	return nil, h.builds.Upload(ctx, caller, in.ID, in.Body.Offset, in.Body.Data)
}

func (h *buildHandlers) cancel(ctx context.Context, caller sandbox.Principal, in *BuildRef) (*struct{}, error) {
	return nil, h.builds.Cancel(ctx, caller, in.ID)
}

type buildsOutput struct{ Body api.BuildList }

func (h *buildHandlers) list(_ context.Context, caller sandbox.Principal, _ *struct{}) (*buildsOutput, error) {
	all, err := h.builds.List(caller)
	if err != nil {
		return nil, err
	}
	out := &buildsOutput{api.BuildList{Builds: make([]api.Build, 0, len(all))}}
	for _, r := range all {
		out.Body.Builds = append(out.Body.Builds, toBuild(r))
	}
	return out, nil
}

func (h *buildHandlers) get(_ context.Context, caller sandbox.Principal, in *BuildRef) (*buildOutput, error) {
	r, err := h.builds.Get(caller, in.ID)
	if err != nil {
		return nil, err
	}
	out := toBuild(r)
	out.Provenance = r.Provenance
	return &buildOutput{out}, nil
}

func toBuild(r build.Record) api.Build {
	return api.Build{ID: r.ID, Tag: r.Tag, State: string(r.State), CreatedAt: r.Created, EndedAt: timeOrNil(r.Ended), Digest: r.Digest, Error: r.Error, Code: r.Code}
}

func (h *buildHandlers) run(_ context.Context, caller sandbox.Principal, in *BuildRef) (*huma.StreamResponse, error) {
	// An invalid name is answered with an error status. Later problems can only be lines of the
	// stream.
	if _, err := h.builds.Get(caller, in.ID); err != nil {
		return nil, err
	}
	return progressLines(func(ctx context.Context, send func(api.BuildEvent)) api.BuildEvent {
		img, err := h.builds.Run(ctx, caller, in.ID, func(e solve.Event) {
			send(api.BuildEvent{Kind: string(e.Kind), Step: e.Step, Title: e.Title, Text: e.Text, Millis: e.Took.Milliseconds()})
		})
		if err != nil {
			logInternal(ctx, h.log, "builds-run", err)
			problem := problemOf(err).Problem
			return api.BuildEvent{Finished: true, Problem: &problem}
		}
		built := toWholeImage(img)
		return api.BuildEvent{Finished: true, Image: &built}
	}), nil
}

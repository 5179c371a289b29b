package v1

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
)

// Templates lists, builds and changes templates.
type Templates interface {
	List(caller sandbox.Principal) ([]catalog.Template, error)
	Inspect(caller sandbox.Principal, name string) (catalog.Template, error)
	Create(ctx context.Context, caller sandbox.Principal, req catalog.Request) (catalog.Template, error)
	Tag(ctx context.Context, caller sandbox.Principal, name string, tags []string) (catalog.Template, error)
	Alias(ctx context.Context, caller sandbox.Principal, name string, aliases []string) (catalog.Template, error)
	Remove(ctx context.Context, caller sandbox.Principal, name string, tagged bool) error
}

// Commits makes images of sandboxes.
type Commits interface {
	Commit(ctx context.Context, caller sandbox.Principal, ref, name string) (library.Image, error)
}

type templateHandlers struct {
	templates Templates
	commits   Commits
}

func (h *templateHandlers) register(r *registry) {
	if h.commits != nil {
		register(r, created(op("sandboxes-commit", "POST", "/sandboxes/{id}/commit", "Create an image from a running sandbox")), h.commit)
	}
	if h.templates == nil {
		return
	}
	register(r, op("templates-list", "GET", "/templates", "List templates"), h.list)
	register(r, created(op("templates-create", "POST", "/templates", "Create a version of a template, and wait until its program is ready")), h.create)
	register(r, op("templates-get", "GET", "/templates/inspect", "Describe a template"), h.inspect)
	register(r, op("templates-tag", "POST", "/templates/tags", "Set tags of a version of a template, or aliases of a template"), h.tag)
	register(r, empty(op("templates-remove", "DELETE", "/templates", "Remove a template, or one of its tags or aliases")), h.remove)
}

// TemplateRef is a template in the query: its name may contain a slash.
type TemplateRef struct {
	Template string `query:"template" required:"true" maxLength:"256" doc:"Its name, an alias or its ID, with or without a tag."`
}

type templatesOutput struct{ Body api.TemplateList }

func (h *templateHandlers) list(_ context.Context, caller sandbox.Principal, _ *struct{}) (*templatesOutput, error) {
	all, err := h.templates.List(caller)
	if err != nil {
		return nil, err
	}
	out := &templatesOutput{api.TemplateList{Templates: make([]api.Template, 0, len(all))}}
	for _, t := range all {
		out.Body.Templates = append(out.Body.Templates, toTemplate(t))
	}
	return out, nil
}

type templateOutput struct{ Body api.Template }

func (h *templateHandlers) inspect(_ context.Context, caller sandbox.Principal, in *TemplateRef) (*templateOutput, error) {
	t, err := h.templates.Inspect(caller, in.Template)
	if err != nil {
		return nil, err
	}
	return &templateOutput{toTemplate(t)}, nil
}

type createTemplateInput struct{ Body api.CreateTemplate }

func (h *templateHandlers) create(ctx context.Context, caller sandbox.Principal, in *createTemplateInput) (*templateOutput, error) {
	b := in.Body
	req := catalog.Request{Template: b.Template, Image: b.Image, Settings: catalog.Settings{User: b.User, Dir: b.WorkingDir, Env: b.Env}}
	var err error
	if req.Limits, err = fromLimits(b.Limits); err != nil {
		return nil, err
	}
	if b.Access != nil {
		access, err := fromAccess(b.Access)
		if err != nil {
			return nil, err
		}
		req.Access = &access
	}
	if len(b.Start) > 0 || len(b.Ready) > 0 {
		timeout, err := duration("ready_timeout_seconds", b.ReadyTimeoutSeconds)
		if err != nil {
			return nil, err
		}
		req.Start = &sandbox.Start{Command: b.Start, Ready: b.Ready, Timeout: timeout}
	}
	t, err := h.templates.Create(ctx, caller, req)
	if err != nil {
		return nil, err
	}
	return &templateOutput{toTemplate(t)}, nil
}

type tagTemplateInput struct{ Body api.TagTemplate }

func (h *templateHandlers) tag(ctx context.Context, caller sandbox.Principal, in *tagTemplateInput) (*templateOutput, error) {
	t, err := h.templates.Inspect(caller, in.Body.Template)
	if err == nil && len(in.Body.Tags) > 0 {
		t, err = h.templates.Tag(ctx, caller, in.Body.Template, in.Body.Tags)
	}
	if err == nil && len(in.Body.Aliases) > 0 {
		t, err = h.templates.Alias(ctx, caller, in.Body.Template, in.Body.Aliases)
	}
	if err != nil {
		return nil, err
	}
	return &templateOutput{toTemplate(t)}, nil
}

func (h *templateHandlers) remove(ctx context.Context, caller sandbox.Principal, in *TemplateRef) (*struct{}, error) {
	return nil, h.templates.Remove(ctx, caller, in.Template, strings.Contains(in.Template, ":"))
}

type commitInput struct {
	Ref
	Body api.Commit
}

type committedOutput struct{ Body api.Image }

func (h *templateHandlers) commit(ctx context.Context, caller sandbox.Principal, in *commitInput) (*committedOutput, error) {
	img, err := h.commits.Commit(ctx, caller, in.ID, in.Body.Image)
	if err != nil {
		return nil, err
	}
	return &committedOutput{toWholeImage(img)}, nil
}

func toTemplate(t catalog.Template) api.Template {
	out := api.Template{ID: t.ID, Name: t.Name, Aliases: t.Aliases, Owner: t.Owner, Host: t.Host, CreatedAt: t.Created, Versions: make([]api.TemplateVersion, 0, len(t.Versions))}
	for _, v := range t.Versions {
		one := api.TemplateVersion{
			Version: v.Number, Tags: t.TagsOf(v.Number), CreatedAt: v.Created, Image: v.Image, ImageDigest: v.Digest, Making: v.Maker != nil,
			User: v.User, WorkingDir: v.Dir, EnvNames: slices.Sorted(maps.Keys(v.Env)), HasMemory: v.Memory != "", Note: v.Note,
		}
		if v.Limits != (sandbox.Limits{}) {
			limits := toLimits(v.Limits)
			one.Limits = &limits
		}
		if v.Access != nil {
			one.Access = toAccess(*v.Access)
		}
		if v.Start != nil {
			one.Start, one.Ready, one.ReadyTimeoutSeconds = v.Start.Command, v.Start.Ready, v.Start.Timeout.Seconds()
			if one.ReadyTimeoutSeconds == 0 && len(v.Start.Ready) > 0 {
				one.ReadyTimeoutSeconds = float64(sandbox.DefaultReadyTimeout / time.Second)
			}
		}
		out.Versions = append(out.Versions, one)
	}
	return out
}

// toAccess returns an access as it was requested. Several policy documents follow each other.
func toAccess(a sandbox.Access) *api.Access {
	out := &api.Access{Level: a.Level, Net: string(a.Net), Allow: a.Allow}
	for _, d := range a.Documents {
		text, err := d.YAML()
		if err != nil {
			text = "# " + d.Name + " cannot be shown"
		}
		if out.Policy != "" {
			out.Policy += "---\n"
		}
		out.Policy += text
	}
	return out
}

package v1

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	imagespec "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/archive"
	"github.com/crannog/crannog/internal/image/library"
	imageregistry "github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/sandbox"
)

// Images lists and changes the images of this machine.
type Images interface {
	List() ([]library.Image, error)
	Inspect(ref string) (library.Image, error)
	Remove(ctx context.Context, caller sandbox.Principal, ref string) ([]string, error)
	Prune(ctx context.Context, caller sandbox.Principal) (library.Pruned, error)
}

// ImageTransfer moves images between this machine, registries and files.
type ImageTransfer interface {
	Pull(ctx context.Context, caller sandbox.Principal, ref, platform string, report func(library.Progress)) (library.Image, error)
	Push(ctx context.Context, caller sandbox.Principal, ref, to string, report func(library.Progress)) error
	Attach(ctx context.Context, caller sandbox.Principal, ref, to, path, mediaType string) (imagespec.Hash, error)
	Attached(ctx context.Context, ref, from string) ([]imageregistry.Attached, error)
	ReadAttached(ctx context.Context, ref, from, which string) ([]byte, error)
	Import(ctx context.Context, caller sandbox.Principal, from, as, platform string, report func(library.Progress)) ([]library.Image, error)
	Export(ctx context.Context, ref, format string, w io.Writer) error
}

// imageHandlers serves images. Changing them, and using this user's credentials for registries, is
// for local callers only.
type imageHandlers struct {
	images   Images
	transfer ImageTransfer
	engines  *engine.Registry
	log      *slog.Logger
}

func (h *imageHandlers) register(r *registry) {
	if h.images == nil {
		return
	}
	register(r, op("images-list", "GET", "/images", "List the images of this machine"), h.list)
	register(r, op("images-get", "GET", "/images/inspect", "Describe an image"), h.inspect)
	register(r, op("images-remove", "DELETE", "/images", "Remove an image by its name"), h.remove)
	register(r, op("images-prune", "POST", "/images/prune", "Remove data that no image, sandbox or snapshot needs"), h.prune)
	register(r, op("images-pull", "POST", "/images/pull", "Pull an image from a registry, with lines of progress"), h.pull)
	register(r, op("images-push", "POST", "/images/push", "Push an image to a registry, with lines of progress"), h.push)
	register(r, op("images-attach", "POST", "/images/attach", "Attach a file to an image in a registry"), h.attach)
	register(r, op("images-attached", "GET", "/images/attached", "List the files that are attached to an image in a registry"), h.attached)
	register(r, op("images-attached-file", "GET", "/images/attached/file", "Fetch a file that is attached to an image in a registry"), h.attachedFile)
	register(r, op("images-import", "POST", "/images/import", "Import images from a file, with lines of progress"), h.importFile)
	register(r, op("images-export", "GET", "/images/archive", "Export an image as a tar"), h.export)
}

func onHostOnly(caller sandbox.Principal) error {
	if caller.OnHost() {
		return nil
	}
	return localOnly(sandbox.Principal{})
}

type imagesOutput struct{ Body api.ImageList }

func (h *imageHandlers) list(context.Context, sandbox.Principal, *struct{}) (*imagesOutput, error) {
	all, err := h.images.List()
	if err != nil {
		return nil, err
	}
	out := &imagesOutput{api.ImageList{Images: make([]api.Image, 0, len(all))}}
	for _, img := range all {
		out.Body.Images = append(out.Body.Images, toImage(img))
	}
	return out, nil
}

// ImageRef is an image in the query: its name contains slashes.
type ImageRef struct {
	Image string `query:"image" required:"true" maxLength:"512" doc:"Its name, or the beginning of its digest."`
}

type imageOutput struct{ Body api.Image }

// InspectRef names an image, and optionally an engine with a store of its own.
type InspectRef struct {
	ImageRef
	Engine string `query:"engine" maxLength:"64" doc:"An engine whose own store is searched too, for callers on this host."`
}

func (h *imageHandlers) inspect(ctx context.Context, caller sandbox.Principal, in *InspectRef) (*imageOutput, error) {
	img, err := h.images.Inspect(in.Image)
	if err == nil {
		return &imageOutput{toWholeImage(img)}, nil
	}
	// As for a new sandbox, clients with a key do not see images of other programs of this host.
	finder, able := engine.As[engine.ImageFinder](h.engines, in.Engine)
	if fault.KindOf(err) != fault.NotFound || !able || !caller.OnHost() {
		return nil, err
	}
	found, missing := finder.FindImage(ctx, in.Image)
	if fault.KindOf(missing) == fault.NotFound {
		return nil, err
	}
	return &imageOutput{toEngineImage(in.Engine, found)}, missing
}

func toEngineImage(from string, i engine.FoundImage) api.Image {
	c := api.ImageConfig{User: i.User, WorkingDir: i.Dir, Entrypoint: i.Entrypoint, Cmd: i.Command}
	for _, name := range slices.Sorted(maps.Keys(i.Env)) {
		c.Env = append(c.Env, name+"="+i.Env[name])
	}
	return api.Image{Name: i.OCI.Ref, Digest: i.OCI.Digest, Source: "engine " + from, AddedAt: i.Made, MadeAt: timeOrNil(i.Made), Bytes: i.Bytes, Config: &c}
}

type removedImagesOutput struct{ Body api.RemovedImages }

func (h *imageHandlers) remove(ctx context.Context, caller sandbox.Principal, in *ImageRef) (*removedImagesOutput, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	gone, err := h.images.Remove(ctx, caller, in.Image)
	if err != nil {
		return nil, err
	}
	return &removedImagesOutput{api.RemovedImages{Removed: append([]string{}, gone...)}}, nil
}

type prunedImagesOutput struct{ Body api.PrunedImages }

func (h *imageHandlers) prune(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*prunedImagesOutput, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	done, err := h.images.Prune(ctx, caller)
	if err != nil {
		return nil, err
	}
	return &prunedImagesOutput{api.PrunedImages{Blobs: done.Blobs, Trees: done.Roots, FreedBytes: done.Bytes}}, nil
}

type pullImageInput struct{ Body api.PullImage }

func (h *imageHandlers) pull(_ context.Context, caller sandbox.Principal, in *pullImageInput) (*huma.StreamResponse, error) {
	return h.lines(caller, func(ctx context.Context, report func(library.Progress)) ([]library.Image, error) {
		img, err := h.transfer.Pull(ctx, caller, in.Body.Image, in.Body.Platform, report)
		return []library.Image{img}, err
	})
}

type pushImageInput struct{ Body api.PushImage }

func (h *imageHandlers) push(_ context.Context, caller sandbox.Principal, in *pushImageInput) (*huma.StreamResponse, error) {
	return h.lines(caller, func(ctx context.Context, report func(library.Progress)) ([]library.Image, error) {
		return nil, h.transfer.Push(ctx, caller, in.Body.Image, in.Body.To, report)
	})
}

type importImageInput struct{ Body api.ImportImage }

func (h *imageHandlers) importFile(_ context.Context, caller sandbox.Principal, in *importImageInput) (*huma.StreamResponse, error) {
	return h.lines(caller, func(ctx context.Context, report func(library.Progress)) ([]library.Image, error) {
		return h.transfer.Import(ctx, caller, in.Body.Path, in.Body.Name, in.Body.Platform, report)
	})
}

// progressEvery bounds how often a client gets progress, which changes with every piece of a layer.
const progressEvery = 100 * time.Millisecond

// lines answers with one line per step of some work and one for its outcome.
func (h *imageHandlers) lines(caller sandbox.Principal, work func(context.Context, func(library.Progress)) ([]library.Image, error)) (*huma.StreamResponse, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	return progressLines(func(ctx context.Context, send func(api.ImageEvent)) api.ImageEvent {
		list, err := work(ctx, throttleProgress(send))
		if err != nil {
			logInternal(ctx, h.log, "images", err)
			problem := problemOf(err).Problem
			return api.ImageEvent{Finish: true, Problem: &problem}
		}
		last := api.ImageEvent{Finish: true}
		for _, img := range list {
			last.Images = append(last.Images, toImage(img))
		}
		return last
	}), nil
}

// throttleProgress passes on the first and the last progress of each blob, and a few updates per
// second between them. One goroutine at a time calls it.
func throttleProgress(send func(api.ImageEvent)) func(library.Progress) {
	sent := map[string]time.Time{}
	return func(p library.Progress) {
		key := p.Stage + p.Digest
		if time.Since(sent[key]) < progressEvery && p.Done != p.Total {
			return
		}
		sent[key] = time.Now()
		send(api.ImageEvent{Stage: p.Stage, Digest: p.Digest, Done: p.Done, Total: p.Total, Present: p.Present})
	}
}

type exportImageInput struct {
	ImageRef
	Format string `query:"format" enum:"oci,docker" doc:"oci if absent."`
}

func (h *imageHandlers) export(_ context.Context, caller sandbox.Principal, in *exportImageInput) (*huma.StreamResponse, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	if err := archive.CheckFormat(in.Format); err != nil {
		return nil, err
	}
	// An invalid name is answered with an error status. A later error only ends the stream.
	if _, err := h.images.Inspect(in.Image); err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "application/x-tar")
		c.SetHeader("Cache-Control", "no-store")
		c.SetStatus(http.StatusOK)
		if err := h.transfer.Export(c.Context(), in.Image, in.Format, c.BodyWriter()); err != nil && c.Context().Err() == nil {
			h.log.WarnContext(c.Context(), "an image was exported incompletely", "image", in.Image, "err", err)
			panic(http.ErrAbortHandler) // the client must not take it for a complete one
		}
	}}, nil
}

func toImage(i library.Image) api.Image {
	out := api.Image{
		Name: i.Name, Digest: i.Digest.String(), Source: i.Source, Platform: i.Platform, AddedAt: i.Added, MadeAt: timeOrNil(i.Created), Bytes: i.Bytes,
	}
	if i.Resolved.Hex != "" {
		out.Resolved = i.Resolved.String()
	}
	if i.Root != nil {
		out.Unpacked, out.LeftOut = i.Root.Bytes, i.Root.Skipped
	}
	return out
}

func toWholeImage(i library.Image) api.Image {
	out := toImage(i)
	out.Feature = string(i.Feature)
	out.Config = &api.ImageConfig{
		User: i.Config.User, Env: i.Config.Env, WorkingDir: i.Config.WorkingDir, Entrypoint: i.Config.Entrypoint, Cmd: i.Config.Cmd, Labels: i.Config.Labels,
	}
	for _, l := range i.Layers {
		out.Layers = append(out.Layers, api.ImageLayer{Digest: l.Digest.String(), Bytes: l.Size, Type: string(l.MediaType)})
	}
	return out
}

// startOf returns the template or the image that a request names.
func startOf(in api.CreateSandbox) (template, image string, err error) {
	switch {
	case in.Image != "" && in.Template != "":
		return "", "", fault.New(fault.Invalid, "image_and_template", "a sandbox can start from an image or from a template, not both")
	case in.Image == "" && in.Template == "" && in.Engine == "":
		return sandbox.BaseTemplate, "", nil
	}
	return in.Template, in.Image, nil
}

package v1

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/volumes"
	"github.com/crannog/crannog/internal/state/volume"
)

// Volumes manages volumes and their files.
type Volumes interface {
	List(ctx context.Context, caller sandbox.Principal) ([]volumes.Info, error)
	Inspect(ctx context.Context, caller sandbox.Principal, ref string) (volumes.Info, error)
	Create(ctx context.Context, caller sandbox.Principal, req volumes.Request) (volume.Volume, error)
	Remove(ctx context.Context, caller sandbox.Principal, ref string) error
	Snapshot(ctx context.Context, caller sandbox.Principal, ref, name string) (volume.Volume, error)
	Files(caller sandbox.Principal, ref string) (*volume.Files, error)
	Change(ctx context.Context, caller sandbox.Principal, what, ref string, do func(*volume.Files) error) error
}

type volumeHandlers struct {
	volumes Volumes
	log     *slog.Logger
}

func (h *volumeHandlers) register(r *registry) {
	if h.volumes == nil {
		return
	}
	register(r, op("volumes-list", "GET", "/volumes", "List volumes"), h.list)
	register(r, created(op("volumes-create", "POST", "/volumes", "Create a volume")), h.create)
	register(r, op("volumes-get", "GET", "/volumes/{volume}", "Describe a volume"), h.inspect)
	register(r, empty(op("volumes-remove", "DELETE", "/volumes/{volume}", "Remove a volume that no sandbox has, with its files")), h.remove)
	register(r, created(op("volumes-snapshot", "POST", "/volumes/{volume}/snapshot", "Create a volume with the content of another one")), h.snapshot)
	register(r, op("volumes-read", "GET", "/volumes/{volume}/files", "Read a file or a directory of a volume, as a tar"), h.read)
	write := empty(op("volumes-write", "PUT", "/volumes/{volume}/files", "Store the files of a tar in a directory of a volume"))
	write.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/x-tar": {Schema: &huma.Schema{Type: "string", Format: "binary"}},
	}}
	register(r, write, h.write)
}

// VolumeRef is a volume in the path.
type VolumeRef struct {
	Volume string `path:"volume" maxLength:"63" doc:"Its name or ID."`
}

type volumesOutput struct{ Body api.VolumeList }

func (h *volumeHandlers) list(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*volumesOutput, error) {
	all, err := h.volumes.List(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := &volumesOutput{api.VolumeList{Volumes: make([]api.Volume, 0, len(all))}}
	for _, v := range all {
		out.Body.Volumes = append(out.Body.Volumes, toVolume(v))
	}
	return out, nil
}

type volumeOutput struct{ Body api.Volume }

func (h *volumeHandlers) inspect(ctx context.Context, caller sandbox.Principal, in *VolumeRef) (*volumeOutput, error) {
	v, err := h.volumes.Inspect(ctx, caller, in.Volume)
	if err != nil {
		return nil, err
	}
	return &volumeOutput{toVolume(v)}, nil
}

type createVolumeInput struct{ Body api.CreateVolume }

func (h *volumeHandlers) create(ctx context.Context, caller sandbox.Principal, in *createVolumeInput) (*volumeOutput, error) {
	v, err := h.volumes.Create(ctx, caller, volumes.Request{Name: in.Body.Name, Bytes: in.Body.Bytes, Files: in.Body.Files, Unlimited: in.Body.Unlimited})
	if err != nil {
		return nil, err
	}
	return &volumeOutput{toVolume(volumes.Info{Volume: v})}, nil
}

func (h *volumeHandlers) remove(ctx context.Context, caller sandbox.Principal, in *VolumeRef) (*struct{}, error) {
	return nil, h.volumes.Remove(ctx, caller, in.Volume)
}

type snapshotVolumeInput struct {
	VolumeRef
	Body api.SnapshotVolume
}

func (h *volumeHandlers) snapshot(ctx context.Context, caller sandbox.Principal, in *snapshotVolumeInput) (*volumeOutput, error) {
	v, err := h.volumes.Snapshot(ctx, caller, in.Volume, in.Body.Name)
	if err != nil {
		return nil, err
	}
	return &volumeOutput{toVolume(volumes.Info{Volume: v})}, nil
}

// VolumePath is a path in a volume.
type VolumePath struct {
	VolumeRef
	Path string `query:"path" maxLength:"4096" doc:"Path in the volume; all of it if absent."`
}

func (h *volumeHandlers) read(_ context.Context, caller sandbox.Principal, in *VolumePath) (*huma.StreamResponse, error) {
	files, err := h.volumes.Files(caller, in.Volume)
	if err != nil {
		return nil, err
	}
	// A missing file is answered with an error status. A later error only ends the stream.
	if _, err := files.Stat(in.Path); err != nil {
		_ = files.Close() // nothing was written
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		defer files.Close()
		c.SetHeader("Content-Type", "application/x-tar")
		c.SetHeader("Cache-Control", "no-store")
		c.SetStatus(http.StatusOK)
		if err := files.WriteTar(in.Path, c.BodyWriter()); err != nil && c.Context().Err() == nil {
			h.log.WarnContext(c.Context(), "files of a volume were sent incompletely", "volume", in.Volume, "err", err)
			panic(http.ErrAbortHandler) // the client must not take it for a complete one
		}
	}}, nil
}

// volumeUpload is a request whose body is read while it arrives, because it may be larger than
// memory.
type volumeUpload struct {
	VolumePath
	body io.Reader
}

// Resolve implements huma.Resolver.
func (u *volumeUpload) Resolve(c huma.Context) []error {
	u.body = &slowBody{c.BodyReader(), c}
	return nil
}

// uploadPause is how long the client of an upload may send nothing.
const uploadPause = time.Minute

// slowBody extends the time limit of a body with each piece of it.
type slowBody struct {
	io.Reader
	c huma.Context
}

// Read implements io.Reader.
func (b *slowBody) Read(p []byte) (int, error) {
	_ = b.c.SetReadDeadline(time.Now().Add(uploadPause)) // without a connection there is no limit
	return b.Reader.Read(p)
}

func (h *volumeHandlers) write(ctx context.Context, caller sandbox.Principal, in *volumeUpload) (*struct{}, error) {
	return nil, h.volumes.Change(ctx, caller, "write", in.Volume, func(f *volume.Files) error { return f.ReadTar(in.Path, in.body) })
}

func toVolume(v volumes.Info) api.Volume {
	out := api.Volume{
		ID: v.ID, Name: v.Name, Owner: v.Owner, Quota: "none", Bytes: v.Bytes, Files: v.Volume.Files, CreatedAt: v.Created, From: v.From, Sandboxes: v.Sandboxes,
	}
	if v.Enforced() {
		out.Quota = "enforced"
	}
	if u := v.Usage; u != nil {
		out.Usage = &api.VolumeUsage{UsedBytes: u.UsedBytes, UsedFiles: u.UsedFiles, TotalBytes: u.TotalBytes}
	}
	return out
}

func fromVolumeMounts(list []api.VolumeMount) (out []sandbox.VolumeMount) {
	for _, m := range list {
		out = append(out, sandbox.VolumeMount{Name: m.Name, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return out
}

func toVolumeMounts(list []sandbox.VolumeMount) (out []api.VolumeMount) {
	for _, m := range list {
		out = append(out, api.VolumeMount{Name: m.Name, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return out
}

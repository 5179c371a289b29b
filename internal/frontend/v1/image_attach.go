package v1

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

type attachToImageInput struct{ Body api.AttachToImage }

type attachedFileOutput struct{ Body api.AttachedFile }

func (h *imageHandlers) attach(ctx context.Context, caller sandbox.Principal, in *attachToImageInput) (*attachedFileOutput, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	stored, err := h.transfer.Attach(ctx, caller, in.Body.Image, in.Body.To, in.Body.Path, in.Body.Type)
	if err != nil {
		return nil, err
	}
	return &attachedFileOutput{api.AttachedFile{Digest: stored.String()}}, nil
}

// AttachedRef names an image, and the registry that has files about it.
type AttachedRef struct {
	ImageRef
	From string `query:"from" maxLength:"512" doc:"The reference whose repository has the image; its own name if absent."`
}

type attachedFilesOutput struct{ Body api.AttachedFiles }

func (h *imageHandlers) attached(ctx context.Context, caller sandbox.Principal, in *AttachedRef) (*attachedFilesOutput, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	list, err := h.transfer.Attached(ctx, in.Image, in.From)
	if err != nil {
		return nil, err
	}
	out := &attachedFilesOutput{api.AttachedFiles{Files: make([]api.ListedFile, 0, len(list))}}
	for _, a := range list {
		out.Body.Files = append(out.Body.Files, api.ListedFile{Digest: a.Digest.String(), Type: a.Type, Subject: a.Subject.String()})
	}
	return out, nil
}

type attachedFileInput struct {
	AttachedRef
	File string `query:"file" required:"true" maxLength:"255" doc:"The digest of its manifest, or its media type if only one file has it."`
}

func (h *imageHandlers) attachedFile(ctx context.Context, caller sandbox.Principal, in *attachedFileInput) (*huma.StreamResponse, error) {
	if err := onHostOnly(caller); err != nil {
		return nil, err
	}
	data, err := h.transfer.ReadAttached(ctx, in.Image, in.From, in.File)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		// Everyone who can write to the registry chooses a type, so a browser must not act on it.
		c.SetHeader("Content-Type", "application/octet-stream")
		c.SetHeader("Cache-Control", "no-store")
		c.SetStatus(http.StatusOK)
		_, _ = c.BodyWriter().Write(data) // an error means that the client has gone
	}}, nil
}

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// imageKinds lists the kinds of images from which a container can start: an image in the daemon, or
// one that is loaded into it. A container cannot start from directories of this host, because the
// daemon may run on another host.
var imageKinds = []engine.ImageKind{engine.ImageOCI}

const codeNoImage = "image_not_found"

// ensureImage loads the requested image into the daemon if it is missing, and returns the daemon's
// ID of the image. It never returns another image with the same name.
func (e *Engine) ensureImage(ctx context.Context, owner string, image engine.OCI) (string, error) {
	id, err := e.imageID(ctx, image)
	if err == nil || !cerrdefs.IsNotFound(err) {
		return id, err
	}
	if e.o.Images == nil {
		return "", fault.Wrap(err, fault.NotFound, codeNoImage, fmt.Sprintf("the Docker daemon has no image %s with the digest %s", image.Ref, image.Digest)).
			WithHint("docker pull " + image.Ref)
	}
	if err := e.load(ctx, owner, image); err != nil {
		return "", err
	}
	id, err = e.imageID(ctx, image)
	if cerrdefs.IsNotFound(err) {
		return "", fault.Wrap(err, fault.Conflict, "image_changed", fmt.Sprintf("the image %s that was loaded into the Docker daemon does not have the digest %s", image.Ref, image.Digest)).
			WithHint("crannog image pull " + image.Ref)
	}
	return id, err
}

// imageID returns the daemon's ID of the image with this digest.
func (e *Engine) imageID(ctx context.Context, image engine.OCI) (string, error) {
	found, err := e.client.ImageInspect(ctx, image.Digest)
	if err != nil {
		return "", err
	}
	return found.ID, nil
}

// FindImage implements engine.ImageFinder.
func (e *Engine) FindImage(ctx context.Context, ref string) (engine.FoundImage, error) {
	found, err := e.client.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		return engine.FoundImage{}, fault.Wrap(err, fault.NotFound, codeNoImage, "the Docker daemon has no image "+ref)
	}
	if err != nil {
		return engine.FoundImage{}, e.explain("find the image "+ref, err)
	}
	image := engine.FoundImage{OCI: engine.OCI{Ref: ref, Digest: found.ID}, Env: map[string]string{}, Bytes: found.Size}
	if made, err := time.Parse(time.RFC3339Nano, found.Created); err == nil {
		image.Made = made
	}
	if c := found.Config; c != nil {
		image.User, image.Dir, image.Entrypoint, image.Command = c.User, c.WorkingDir, c.Entrypoint, c.Cmd
		for _, variable := range c.Env {
			if name, value, ok := strings.Cut(variable, "="); ok {
				image.Env[name] = value
			}
		}
	}
	return image, nil
}

// loadedName returns the name of an image of our store in the daemon. Under its original name it
// could replace an image of the daemon's other users.
func loadedName(owner string, image engine.OCI) string {
	_, hex, _ := strings.Cut(image.Digest, ":")
	return "crannog/" + owner[:12] + ":" + hex[:min(len(hex), 12)]
}

// load loads an image of our store into the daemon.
func (e *Engine) load(ctx context.Context, owner string, image engine.OCI) error {
	from, to := io.Pipe()
	go func() { to.CloseWithError(e.o.Images.ExportTo(ctx, image, loadedName(owner, image), to)) }()
	defer from.Close() // after an error, this ends the export
	loaded, err := e.client.ImageLoad(ctx, from)
	if err != nil {
		return fmt.Errorf("load %s: %w", image.Ref, err)
	}
	// The daemon's answer ends when it has loaded the image.
	_, err = io.Copy(io.Discard, loaded)
	if err := errors.Join(err, loaded.Close()); err != nil {
		return fmt.Errorf("load %s: %w", image.Ref, err)
	}
	return nil
}

package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/volume"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/ids"
)

// Labels of all that the daemon holds for a state directory. A daemon may serve several.
const (
	labelOwner   = "dev.crannog.owner"   // the ID of the state directory
	labelSandbox = "dev.crannog.sandbox" // the sandbox's ID
	labelBase    = "dev.crannog.base"    // the image that an image with a guest is made of
	labelGuest   = "dev.crannog.guest"   // the digest of that guest's program
)

// ownerFile holds the ID of the state directory. It is a file, and not derived from the
// directory's path, so that a directory that is moved keeps its sandboxes.
const ownerFile = "owner"

// owner returns the ID by which the daemon knows this state directory, or "" if it has
// none and is not to be given one.
func (e *Engine) owner(create bool) (string, error) {
	path := filepath.Join(e.dir, ownerFile)
	text, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(text)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("docker: %w", err)
	}
	if !create {
		return "", nil
	}
	if err := os.MkdirAll(e.dir, 0o700); err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	// Of two processes that do this at once, one link wins, with all of its content.
	temporary, err := os.CreateTemp(e.dir, ownerFile)
	if err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	defer os.Remove(temporary.Name())
	_, err = fmt.Fprintf(temporary, "%x\n", ids.NewUUID())
	if err := errors.Join(err, temporary.Close()); err != nil {
		return "", fmt.Errorf("docker: %w", err)
	}
	if err := os.Link(temporary.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("docker: %w", err)
	}
	return e.owner(false)
}

// containerName is unique to a sandbox of this state directory, so that the daemon itself
// refuses a second one.
func containerName(owner, id string) string { return "crannog-" + owner[:12] + "-" + id }

// filters select what is labelled with an owner and, unless it is "", a sandbox.
func filters(owner, id string) client.Filters {
	f := client.Filters{}.Add("label", labelOwner+"="+owner)
	if id != "" {
		f = f.Add("label", labelSandbox+"="+id)
	}
	return f
}

func (e *Engine) containers(ctx context.Context, owner, id string) ([]container.Summary, error) {
	found, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters(owner, id)})
	return found.Items, err
}

func (e *Engine) volumes(ctx context.Context, owner, id string) ([]volume.Volume, error) {
	found, err := e.client.VolumeList(ctx, client.VolumeListOptions{Filters: filters(owner, id)})
	return found.Items, err
}

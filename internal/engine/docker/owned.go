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

// Labels of the objects in the daemon that belong to a state directory. A daemon may serve several
// state directories.
const (
	labelOwner   = "dev.crannog.owner"   // the ID of the state directory
	labelSandbox = "dev.crannog.sandbox" // the sandbox's ID
	labelBase    = "dev.crannog.base"    // the image from which an image with a guest was built
	labelGuest   = "dev.crannog.guest"   // the digest of the guest's program
	labelEgress  = "dev.crannog.egress"  // "proxy" if a process of this host carries the network
)

// ownerFile holds the ID of the state directory. The ID is not derived from the directory's path,
// so that a moved directory keeps its sandboxes.
const ownerFile = "owner"

// owner returns the ID of this state directory, which labels its objects in the daemon. If the
// directory has no ID yet, owner creates one or returns "", depending on create.
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
	// If two processes do this at once, one link succeeds, with complete content.
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

// containerName returns the name of a sandbox's container. It is unique to the sandbox and the
// state directory, so the daemon refuses a second container for the sandbox.
func containerName(owner, id string) string { return "crannog-" + owner[:12] + "-" + id }

// filters selects objects by the label of their owner and, unless id is "", of their sandbox.
func filters(owner, id string) client.Filters {
	f := client.Filters{}.Add("label", labelOwner+"="+owner)
	if id != "" {
		f = f.Add("label", labelSandbox+"="+id)
	}
	return f
}

// containers lists the containers of an owner and, unless id is "", of one sandbox.
func (e *Engine) containers(ctx context.Context, owner, id string) ([]container.Summary, error) {
	found, err := e.client.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters(owner, id)})
	return found.Items, err
}

// volumes lists the volumes of an owner and, unless id is "", of one sandbox.
func (e *Engine) volumes(ctx context.Context, owner, id string) ([]volume.Volume, error) {
	found, err := e.client.VolumeList(ctx, client.VolumeListOptions{Filters: filters(owner, id)})
	return found.Items, err
}

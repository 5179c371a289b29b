package docker

import (
	"context"
	"slices"

	"github.com/moby/moby/api/types/system"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/fault"
)

// codePodman is the code of the fault for a daemon that is Podman.
const codePodman = "podman_unsupported"

// refusePodman returns a fault if the daemon is Podman. Its API is that of a Docker Engine, but it
// takes neither the text of a seccomp profile nor a limit of the files of a tmpfs. Without them, a
// sandbox would have weaker protection than it is said to have.
func (e *Engine) refusePodman(ctx context.Context) error {
	version, err := e.client.ServerVersion(ctx, client.ServerVersionOptions{})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(version.Components, func(c system.ComponentVersion) bool { return c.Name == "Podman Engine" }) {
		return fault.New(fault.Unsupported, codePodman, "the daemon at "+e.client.DaemonHost()+" is Podman "+version.Version+", which does not apply the seccomp profile and the limits of a sandbox").
			WithHint("set docker_host to the address of a Docker Engine")
	}
	return nil
}

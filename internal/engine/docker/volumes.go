package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// showsVolumes reports whether sandboxes can show directories of this host that their programs
// change. The daemon must be on this host, and only root can check what a container shows.
func (e *Engine) showsVolumes() bool {
	return e.local && os.Geteuid() == 0 && !e.userspaceKernel()
}

// checkVolumes checks, before the guest runs, that a container shows exactly the directories of
// this host. A daemon with other mounts than this process would show the empty directory on which
// the volume is mounted here, and files in it would have no quota.
func (e *Engine) checkVolumes(ctx context.Context, container string, volumes []engine.Volume) error {
	if len(volumes) == 0 {
		return nil
	}
	pid, err := e.processOf(ctx, container)
	if err != nil {
		return err
	}
	root, err := os.OpenFile(fmt.Sprintf("/proc/%d/root", pid), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("root of the container: %w", err)
	}
	defer root.Close()
	// The PID may have been reused between the two calls.
	if err := inContainer(pid, container); err != nil {
		return err
	}
	for _, v := range volumes {
		same, err := sameDirectory(root, v)
		if err != nil {
			return fmt.Errorf("volume at %s: %w", v.Target, err)
		}
		if !same {
			return fault.Newf(fault.Unsupported, engine.CodeVolumes, "the Docker daemon does not show the volume at %s, because it has other mounts than this server", v.Target).
				WithHint("start dockerd in the mount namespace of the server, or choose another engine; crannog engines lists them")
		}
	}
	return nil
}

// sameDirectory reports whether a volume's target in a container is the volume's directory.
func sameDirectory(root *os.File, v engine.Volume) (bool, error) {
	// The image may contain links, and the path must stay in the container.
	fd, err := unix.Openat2(int(root.Fd()), v.Target, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return false, &os.PathError{Op: "openat2", Path: v.Target, Err: err}
	}
	defer unix.Close(fd)
	var shown, want unix.Stat_t
	if err := errors.Join(unix.Fstat(fd, &shown), unix.Stat(v.Source, &want)); err != nil {
		return false, err
	}
	return shown.Dev == want.Dev && shown.Ino == want.Ino, nil
}

// processOf returns the PID of a running container's first process.
func (e *Engine) processOf(ctx context.Context, container string) (int, error) {
	c, err := e.client.ContainerInspect(ctx, container, client.ContainerInspectOptions{})
	if err != nil {
		return 0, err
	}
	if c.Container.State == nil || !c.Container.State.Running {
		return 0, errors.New("the container has ended")
	}
	return c.Container.State.Pid, nil
}

// inContainer returns an error if a process of this host is not in the container. The daemon's PID
// may belong to another PID namespace, or may have been reused.
func inContainer(pid int, container string) error {
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err == nil && !strings.Contains(string(groups), container) {
		err = fmt.Errorf("process %d of this host is not in the container", pid)
	}
	return err
}

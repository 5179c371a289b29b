package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
)

// Dial implements engine.Engine. A container has no address to dial, and the daemon may be on
// another host. Therefore this process starts the guest's program once more in the container, and
// sends all streams over its standard input and output.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	if err := engine.CheckPort(port); err != nil {
		return nil, err
	}
	c, err := e.running(ctx, id)
	if err != nil {
		return nil, err
	}
	for retried := false; ; retried = true {
		streams, created, err := e.openStreams(ctx, c)
		if err != nil {
			return nil, e.explain("reach sandbox "+id, err)
		}
		conn, err := streams.Dial(ctx, port)
		switch {
		case err == nil:
			return conn, nil
		case errors.Is(err, relay.ErrRefused):
			return nil, engine.PortClosed(port, err)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case created || retried:
			e.dropStreams(c.id)
			if _, err := e.running(ctx, id); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("dial %s:%d: %w", id, port, err)
		}
		// A program in the sandbox may have killed the other end, or the daemon may have restarted.
		// Try once more with new streams.
		e.dropStreams(c.id)
	}
}

// openStreams returns the streams into a container. On first use it creates them and returns
// created = true.
func (e *Engine) openStreams(ctx context.Context, c runningContainer) (_ *relay.Streams, created bool, err error) {
	e.mu.Lock()
	known := e.streams[c.id]
	e.mu.Unlock()
	if known != nil {
		select {
		case <-known.streams.Done():
			e.dropStreams(c.id)
		default:
			return known.streams, false, nil
		}
	}
	for c.paused {
		// No program can be started in a paused container.
		if c, err = e.awaitThaw(ctx, c); err != nil {
			return nil, false, err
		}
	}
	exec, err := e.client.ExecCreate(ctx, c.id, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: []string{c.guest, guestboot.ChannelRole},
	})
	if err != nil {
		return nil, false, err
	}
	attached, err := e.client.ExecAttach(ctx, exec.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, false, err
	}
	conn := newExecConnection(attached.HijackedResponse)
	if conn.streams, err = relay.NewStreams(conn); err != nil {
		return nil, false, err
	}
	e.mu.Lock()
	earlier := e.streams[c.id]
	e.streams[c.id] = conn
	e.mu.Unlock()
	if earlier != nil {
		// Another caller has created streams at the same time and may be using them. Close them
		// only with the new ones.
		go func() { <-conn.streams.Done(); _ = earlier.close() }()
	}
	return conn.streams, true, nil
}

// dropStreams forgets the streams into a container after they have failed.
func (e *Engine) dropStreams(container string) {
	e.mu.Lock()
	known := e.streams[container]
	delete(e.streams, container)
	e.mu.Unlock()
	if known != nil {
		_ = known.close() // the streams have failed already
	}
}

// runningContainer describes a running container.
type runningContainer struct {
	id, guest string
	pid       int
	paused    bool
}

// running returns the running container of a sandbox.
func (e *Engine) running(ctx context.Context, id string) (runningContainer, error) {
	name, err := e.nameOf(id)
	if err != nil {
		return runningContainer{}, err
	}
	c, err := e.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return runningContainer{}, unknownSandbox(id)
	}
	if err != nil {
		return runningContainer{}, e.explain("inspect sandbox "+id, err)
	}
	state := c.Container.State
	if state == nil || !state.Running {
		return runningContainer{}, engine.HasStopped(id, nil)
	}
	return runningContainer{id: c.Container.ID, guest: c.Container.Path, pid: state.Pid, paused: state.Paused}, nil
}

// nameOf returns the name of a sandbox's container.
func (e *Engine) nameOf(id string) (string, error) {
	owner, err := e.owner(false)
	if err != nil {
		return "", err
	}
	if owner == "" || !validID(id) {
		return "", unknownSandbox(id)
	}
	return containerName(owner, id), nil
}

// unknownSandbox returns the fault for an ID without a container.
func unknownSandbox(id string) error {
	return fault.Newf(fault.NotFound, "sandbox_not_found", "no sandbox %q", id)
}

// pollInterval is the interval at which a waiting caller checks the state of a container.
const pollInterval = 100 * time.Millisecond

// awaitThaw waits until a paused container continues.
func (e *Engine) awaitThaw(ctx context.Context, c runningContainer) (runningContainer, error) {
	select {
	case <-ctx.Done():
		return c, context.Cause(ctx)
	case <-time.After(pollInterval):
	}
	now, err := e.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return c, err
	}
	c.paused = now.Container.State != nil && now.Container.State.Paused
	return c, nil
}

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
	for again := false; ; again = true {
		streams, fresh, err := e.open(ctx, c)
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
		case fresh || again:
			e.drop(c.id)
			if _, gone := e.running(ctx, id); gone != nil {
				return nil, gone
			}
			return nil, fmt.Errorf("dial %s:%d: %w", id, port, err)
		}
		// A program in the sandbox may have killed the other end, or the daemon may have restarted.
		e.drop(c.id)
	}
}

// open returns the streams into a container, and creates them on first use.
func (e *Engine) open(ctx context.Context, c found) (_ *relay.Streams, fresh bool, err error) {
	e.mu.Lock()
	known := e.streams[c.id]
	e.mu.Unlock()
	if known != nil {
		select {
		case <-known.streams.Done():
			e.drop(c.id)
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
	made, err := e.client.ExecCreate(ctx, c.id, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: []string{c.guest, guestboot.ChannelRole},
	})
	if err != nil {
		return nil, false, err
	}
	attached, err := e.client.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, false, err
	}
	in := newExecConnection(attached.HijackedResponse)
	if in.streams, err = relay.NewStreams(in); err != nil {
		return nil, false, err
	}
	e.mu.Lock()
	before := e.streams[c.id]
	e.streams[c.id] = in
	e.mu.Unlock()
	if before != nil {
		// Another caller created its streams first. Use those.
		go func() { <-in.streams.Done(); _ = before.close() }()
	}
	return in.streams, true, nil
}

// drop removes streams that have ended.
func (e *Engine) drop(container string) {
	e.mu.Lock()
	known := e.streams[container]
	delete(e.streams, container)
	e.mu.Unlock()
	if known != nil {
		_ = known.close() // the streams have failed already
	}
}

// found is a running container.
type found struct {
	id, guest string
	pid       int
	paused    bool
}

// running returns the running container of a sandbox.
func (e *Engine) running(ctx context.Context, id string) (found, error) {
	name, err := e.nameOf(id)
	if err != nil {
		return found{}, err
	}
	c, err := e.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return found{}, unknown(id)
	}
	if err != nil {
		return found{}, e.explain("inspect sandbox "+id, err)
	}
	state := c.Container.State
	if state == nil || !state.Running {
		return found{}, engine.HasStopped(id, nil)
	}
	return found{id: c.Container.ID, guest: c.Container.Path, pid: state.Pid, paused: state.Paused}, nil
}

// nameOf returns the name of a sandbox's container.
func (e *Engine) nameOf(id string) (string, error) {
	owner, err := e.owner(false)
	if err != nil {
		return "", err
	}
	if owner == "" || !validID(id) {
		return "", unknown(id)
	}
	return containerName(owner, id), nil
}

func unknown(id string) error {
	return fault.Newf(fault.NotFound, "sandbox_not_found", "no sandbox %q", id)
}

// thawPause is the interval at which a caller that waits checks a paused container.
const thawPause = 100 * time.Millisecond

// awaitThaw waits until a paused container continues.
func (e *Engine) awaitThaw(ctx context.Context, c found) (found, error) {
	select {
	case <-ctx.Done():
		return c, context.Cause(ctx)
	case <-time.After(thawPause):
	}
	now, err := e.client.ContainerInspect(ctx, c.id, client.ContainerInspectOptions{})
	if err != nil {
		return c, err
	}
	c.paused = now.Container.State != nil && now.Container.State.Paused
	return c, nil
}

package docker

import (
	"context"
	"errors"
	"os"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/ids"
)

// validID reports whether an ID can be that of a sandbox.
func validID(id string) bool { return ids.ValidSandbox(id) }

// retryPause is the delay between attempts while the daemon cannot be reached, for example during
// its restart.
const retryPause = 500 * time.Millisecond

// exitKilled is the exit code of a program that was killed by SIGKILL.
const exitKilled = 128 + 9

// Wait implements engine.Engine.
func (e *Engine) Wait(ctx context.Context, id string) (engine.Exit, error) {
	name, err := e.nameOf(id)
	if err != nil {
		return engine.Exit{}, err
	}
	// Wait by the container's ID, because another container may get its name.
	c, err := e.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	for client.IsErrConnectionFailed(err) && ctx.Err() == nil {
		// A stopped daemon does not mean that the sandbox has ended.
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
			c, err = e.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
		}
	}
	switch {
	case ctx.Err() != nil:
		return engine.Exit{}, ctx.Err()
	case cerrdefs.IsNotFound(err):
		return engine.Exit{}, unknownSandbox(id)
	case err != nil:
		return engine.Exit{}, e.explain("wait for sandbox "+id, err)
	}
	if c.Container.Config != nil && c.Container.Config.Labels[labelEgress] == string(engine.EgressProxy) {
		e.carryLater(id, c.Container.ID, c.Container.Path)
	}
	for {
		err := e.awaitExit(ctx, c.Container.ID)
		if ctx.Err() != nil {
			return engine.Exit{}, ctx.Err()
		}
		if err == nil || cerrdefs.IsNotFound(err) {
			inspected, err := e.client.ContainerInspect(ctx, c.Container.ID, client.ContainerInspectOptions{})
			if cerrdefs.IsNotFound(err) {
				return engine.Exit{Reason: engine.ReasonKilled, Code: exitKilled, At: time.Now()}, nil
			}
			if err == nil && inspected.Container.State != nil && !inspected.Container.State.Running {
				return exitOf(*inspected.Container.State), nil
			}
		}
		select {
		case <-ctx.Done():
			return engine.Exit{}, ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

// awaitExit returns nil when the container no longer runs.
func (e *Engine) awaitExit(ctx context.Context, container string) error {
	wait := e.client.ContainerWait(ctx, container, client.ContainerWaitOptions{})
	select {
	case result := <-wait.Result:
		if result.Error != nil {
			return errors.New(result.Error.Message)
		}
		return nil
	case err := <-wait.Error:
		return err
	}
}

// exitOf returns how a container ended.
func exitOf(s container.State) engine.Exit {
	exit := engine.Exit{Reason: engine.ReasonExited, Code: s.ExitCode, At: time.Now()}
	if at, err := time.Parse(time.RFC3339Nano, s.FinishedAt); err == nil && at.Year() > 1 {
		exit.At = at
	}
	switch {
	case s.OOMKilled:
		exit.Reason = engine.ReasonOOM
	case s.Status == container.StateCreated:
		exit.Reason = engine.ReasonCrashed // its creation was interrupted
	case s.ExitCode == exitKilled:
		exit.Reason = engine.ReasonKilled
	}
	return exit
}

// Remove implements engine.Engine.
func (e *Engine) Remove(ctx context.Context, id string) error {
	owner, err := e.owner(false)
	if err != nil || owner == "" || !validID(id) {
		return err // no sandbox can have this ID
	}
	if e.takeFailedCreation(id) {
		return nil
	}
	// A hanging daemon must not block the caller from the sandboxes of other engines.
	ctx, cancel := context.WithTimeout(ctx, cleanupTime)
	defer cancel()
	if err := e.remove(ctx, owner, id); err != nil {
		return e.explain("remove sandbox "+id, err)
	}
	return nil
}

// noteFailedCreation makes the next Remove of an ID succeed without the daemon. After a creation
// that failed because the daemon cannot be reached, the caller removes the sandbox, and must not
// fail again.
func (e *Engine) noteFailedCreation(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failedCreations[id] = true
}

// takeFailedCreation reports whether noteFailedCreation was called for an ID, and clears the note.
func (e *Engine) takeFailedCreation(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	failed := e.failedCreations[id]
	delete(e.failedCreations, id)
	return failed
}

// remove removes a sandbox's container and volumes.
func (e *Engine) remove(ctx context.Context, owner, id string) error {
	name := containerName(owner, id)
	if c, err := e.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{}); err == nil {
		defer e.dropStreams(c.Container.ID)
	} else if !cerrdefs.IsNotFound(err) {
		return err
	}
	for {
		_, err := e.client.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if err == nil || cerrdefs.IsNotFound(err) {
			break
		}
		if !cerrdefs.IsConflict(err) {
			return err
		}
		// Another caller is removing the container. Wait until that is done.
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
	if err := os.RemoveAll(e.socketDir(id)); err != nil {
		return err
	}
	volumes, err := e.volumes(ctx, owner, id)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if _, err := e.client.VolumeRemove(ctx, v.Name, client.VolumeRemoveOptions{Force: true}); err != nil && !cerrdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

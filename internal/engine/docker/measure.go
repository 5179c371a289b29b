package docker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
)

// Usage implements engine.Meter.
func (e *Engine) Usage(ctx context.Context, id string) (engine.Usage, error) {
	c, err := e.running(ctx, id)
	if err != nil {
		return engine.Usage{}, err
	}
	response, err := e.client.ContainerStats(ctx, c.id, client.ContainerStatsOptions{})
	if err != nil {
		return engine.Usage{}, e.explain("measure sandbox "+id, err)
	}
	var s container.StatsResponse
	err = json.NewDecoder(response.Body).Decode(&s)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return engine.Usage{}, e.explain("measure sandbox "+id, err)
	}
	cache := s.MemoryStats.Stats["total_inactive_file"] // control groups of version 1
	if cache == 0 {
		cache = s.MemoryStats.Stats["inactive_file"]
	}
	at := s.Read
	if at.IsZero() {
		at = time.Now()
	}
	return engine.Usage{
		At: at, MemoryBytes: int64(s.MemoryStats.Usage - min(cache, s.MemoryStats.Usage)), MemoryCache: int64(cache),
		CPUTime: time.Duration(s.CPUStats.CPUUsage.TotalUsage), PIDs: int64(s.PidsStats.Current),
	}, nil
}

// Bounds implements engine.Meter. It returns the limits that the daemon reports. They may differ
// from the requested limits: if the host lacks the control group for a limit, the daemon only
// warns.
func (e *Engine) Bounds(ctx context.Context, id string) (engine.Limits, error) {
	name, err := e.nameOf(id)
	if err != nil {
		return engine.Limits{}, err
	}
	c, err := e.client.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if cerrdefs.IsNotFound(err) {
		return engine.Limits{}, unknownSandbox(id)
	}
	if err != nil {
		return engine.Limits{}, e.explain("inspect sandbox "+id, err)
	}
	h := c.Container.HostConfig
	if h == nil {
		return engine.Limits{}, nil
	}
	limits := engine.Limits{MemoryBytes: h.Memory, ShmBytes: h.ShmSize}
	if h.CPUPeriod > 0 {
		limits.MilliCPU = h.CPUQuota * 1000 / h.CPUPeriod
	}
	if h.PidsLimit != nil {
		limits.PIDs = *h.PidsLimit
	}
	return limits, nil
}

// Freeze implements engine.Freezer.
func (e *Engine) Freeze(ctx context.Context, id string) error {
	c, err := e.running(ctx, id)
	if err != nil || c.paused {
		return err
	}
	_, err = e.client.ContainerPause(ctx, c.id, client.ContainerPauseOptions{})
	return e.ignoreIfInState(ctx, id, err, true)
}

// Thaw implements engine.Freezer.
func (e *Engine) Thaw(ctx context.Context, id string) error {
	c, err := e.running(ctx, id)
	if err != nil || !c.paused {
		return err
	}
	_, err = e.client.ContainerUnpause(ctx, c.id, client.ContainerUnpauseOptions{})
	return e.ignoreIfInState(ctx, id, err, false)
}

// ignoreIfInState returns the error of a change of state, or nil if the container has the wanted
// state because another caller has already changed it.
func (e *Engine) ignoreIfInState(ctx context.Context, id string, err error, paused bool) error {
	if err == nil {
		return nil
	}
	c, inspectErr := e.running(ctx, id)
	if inspectErr != nil {
		return inspectErr
	}
	if c.paused == paused {
		return nil
	}
	return e.explain("pause or continue sandbox "+id, err)
}

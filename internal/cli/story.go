package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// story is of which sandbox logs are shown: one that there is, or one that has
// ended with its run and whose recordings are kept.
type story struct {
	client *crannog.Client
	id     string
	name   string           // how people call it
	sb     *crannog.Sandbox // nil if only recordings are left
}

// remembered finds what a reference means. @last is what it is for diff: the
// newest sandbox that runs or was kept.
func (a *app) remembered(ctx context.Context, c *connection, ref string) (story, error) {
	var kept []api.KeptRecordings
	if c.local {
		var err error
		if kept, err = c.KeptRecordings(ctx); err != nil && crannog.Code(err) != "route_not_found" {
			return story{}, fail("list what was kept", err)
		}
	}
	if ref != lastAlias {
		sb, err := c.find(ctx, ref)
		if err == nil {
			return story{c.Client, sb.ID(), label(sb.Info()), sb}, nil
		}
		for _, k := range kept {
			if k.ID == ref && errors.Is(err, crannog.ErrNotFound) {
				return story{client: c.Client, id: k.ID, name: k.ID}, nil
			}
		}
		return story{}, err
	}
	rows, err := c.List(ctx, crannog.ListOptions{})
	if err != nil {
		return story{}, fail("find the newest sandbox", err)
	}
	switch {
	case len(kept) > 0 && (len(rows) == 0 || kept[0].TakenAt.After(rows[0].StartedAt)):
		return story{client: c.Client, id: kept[0].ID, name: kept[0].ID}, nil
	case len(rows) == 0:
		return story{}, fail("find the newest sandbox", fault.New(fault.NotFound, "sandbox_not_found", "no sandbox runs, and nothing was kept of one"))
	}
	sb, err := c.Get(ctx, rows[0].ID)
	if err != nil {
		return story{}, fail(fmt.Sprintf("find sandbox %q", rows[0].ID), err).hint(findHint(err))
	}
	return story{c.Client, sb.ID(), label(sb.Info()), sb}, nil
}

// logs are what happened to the sandbox. They go with it.
func (of story) logs(ctx context.Context) ([]api.LogEntry, error) {
	if of.sb == nil {
		return nil, nil
	}
	return of.sb.Logs(ctx)
}

// over says whether nothing more is to come.
func (of story) over(ctx context.Context) bool {
	if of.sb == nil {
		return true
	}
	info, err := of.sb.Refresh(ctx)
	return err != nil || info.State == "stopped"
}

// remember keeps what the command of a run printed beyond its sandbox, as long
// as what it changed.
func (b *box) remember(ctx context.Context) {
	if b.sb == nil || b.keep || b.flags.noChanges || !b.local {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rememberTime)
	defer cancel()
	if _, err := b.sb.KeepRecordings(ctx); err != nil && !errors.Is(err, crannog.ErrNotFound) {
		b.app.note("what was printed is not kept: %v", err)
	}
}

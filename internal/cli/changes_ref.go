package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
)

// changeVerbs are the commands about the changes of a sandbox: diff, apply, export and discard.
type changeVerbs struct{ *app }

// changesRef identifies changes for a command: the changes of a sandbox, or the retained changes of
// a sandbox that has ended.
type changesRef struct {
	id        string
	name      string // name, or ID
	retained  bool
	at        time.Time
	workspace string // host directory, or ""
	paths     []string
}

// selection contains the flags that select changes.
type selection struct {
	since string
	dir   string
}

func (s *selection) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.since, "since", "", "compare with the start or a `snapshot`, by name or ID (default start)")
	cmd.Flags().StringVar(&s.dir, "dir", "", "compare another `directory` inside (default /workspace)")
}

func (s *selection) options(t changesRef, text bool) crannog.ChangesOptions {
	return crannog.ChangesOptions{Since: s.since, Dir: s.dir, Paths: t.paths, Text: text}
}

// changesOf parses [SANDBOX] [PATH...]. A first word that does not name a sandbox is a path. After
// --, all words are paths.
func (a changeVerbs) changesOf(ctx context.Context, c *connection, cmd *cobra.Command, args []string) (changesRef, error) {
	var words, paths []string
	if n := cmd.ArgsLenAtDash(); n >= 0 {
		if n > 1 {
			return changesRef{}, usagef("at most one sandbox may be named before --")
		}
		words, paths = args[:n], args[n:]
	} else if len(args) > 0 {
		words, paths = args[:1], args[1:]
	}
	all, err := candidates(ctx, c)
	if err != nil {
		return changesRef{}, err
	}
	if len(words) == 1 {
		t, err := a.named(ctx, c, all, words[0])
		if err == nil {
			t.paths = paths
			return t, nil
		}
		if cmd.ArgsLenAtDash() >= 0 || !errors.Is(err, crannog.ErrNotFound) {
			return changesRef{}, err
		}
		paths = args
	}
	t, err := a.defaultOf(all)
	if err != nil && len(words) == 1 {
		return changesRef{}, fail("find the sandbox", fault.Newf(fault.NotFound, "sandbox_not_found", "there is no sandbox %q, and no sandbox has this directory as its workspace", inert(words[0]))).
			hint("crannog ls lists running sandboxes")
	}
	t.paths = paths
	return t, err
}

// candidates returns all sandboxes that a command could mean, newest first.
func candidates(ctx context.Context, c *connection) ([]changesRef, error) {
	var all []changesRef
	if c.local {
		retained, err := c.KeptChanges(ctx)
		if err != nil {
			return nil, fail("list retained changes", err)
		}
		for _, k := range retained {
			all = append(all, changesRef{id: k.ID, name: k.ID, retained: true, at: k.TakenAt, workspace: k.Workspace})
		}
	}
	rows, err := c.List(ctx, crannog.ListOptions{States: alive})
	if err != nil {
		return nil, fail("list sandboxes", err)
	}
	for _, r := range rows {
		all = append(all, ofSandbox(r))
	}
	slices.SortStableFunc(all, func(x, y changesRef) int { return y.at.Compare(x.at) })
	return all, nil
}

func ofSandbox(r api.Sandbox) changesRef {
	return changesRef{id: r.ID, name: label(r), at: r.StartedAt, workspace: r.Workspace}
}

// named finds the changes of a sandbox, by its name or ID.
func (a changeVerbs) named(ctx context.Context, c *connection, all []changesRef, ref string) (changesRef, error) {
	of, err := c.subject(ctx, ref)
	for _, t := range all {
		if t.retained && (t.id == ref || t.id == of.id) {
			return t, nil
		}
	}
	switch {
	case err != nil:
		return changesRef{}, err
	case of.sb == nil:
		return changesRef{}, fail("find the changes of "+of.name, fault.Newf(fault.NotFound, "changes_not_found", "sandbox %s has ended, and no changes of it are retained", of.name)).
			hint("it changed nothing, or ran with --no-changes, or the retained changes were applied, discarded or expired")
	}
	return ofSandbox(of.sb.Info()), nil
}

// defaultOf returns the changes of the newest sandbox whose workspace is the current directory.
func (a changeVerbs) defaultOf(all []changesRef) (changesRef, error) {
	here, err := resolved(".")
	if err != nil {
		return changesRef{}, fail("find the current directory", err)
	}
	for _, t := range all {
		if t.workspace == here {
			return t, nil
		}
	}
	return changesRef{}, fail("find the sandbox", fault.New(fault.NotFound, "sandbox_not_found", "no running sandbox and no retained changes belong to this directory")).
		hint("name a sandbox; crannog ls lists running ones, and @last is the one that started last")
}

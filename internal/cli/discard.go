package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/ids"
)

func (a changeVerbs) discardCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "discard [SANDBOX]", Short: "Discard a sandbox's changes, and end it", Args: cobra.MaximumNArgs(1),
		Long: "Discard the retained changes and the recordings of the last run in this directory,\n" +
			"or end a sandbox and discard its changes. The command lists what it discards.",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error { return a.discard(cmd, c, yes, args) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func (a changeVerbs) discard(cmd *cobra.Command, c *connection, yes bool, args []string) error {
	ctx := cmd.Context()
	if done, err := a.discardRecorded(ctx, c, args); done || err != nil {
		return err
	}
	t, err := a.changesOf(ctx, c, cmd, args)
	if err != nil {
		return err
	}
	if len(t.paths) > 0 {
		return usagef("there is no sandbox %q", inert(t.paths[0])).hint("crannog ls lists running sandboxes")
	}
	set, err := c.ChangesOf(ctx, t.id, crannog.ChangesOptions{Text: a.json})
	if err != nil {
		// Changes that cannot be compared can still be discarded.
		a.note("its changes cannot be listed: %v", err)
	}
	if a.interactive() && !yes {
		if err := a.confirm(false, t.retained && set.Files == 0, "discard "+discarded(t, set)); err != nil {
			return err
		}
	}
	if t.retained {
		err = c.DiscardChanges(ctx, t.id)
	} else {
		var sb *crannog.Sandbox
		if sb, err = c.Get(ctx, t.id); err == nil {
			err = sb.Kill(ctx)
		}
	}
	if err != nil && !errors.Is(err, crannog.ErrNotFound) {
		return fail("discard the changes of "+t.name, err)
	}
	if a.json {
		return a.object(set)
	}
	if !a.quiet {
		listChanges(a.Stdout, set.Changes)
	}
	a.note("discarded %s", discarded(t, set))
	return nil
}

// discardRecorded discards the recordings of a run without retained changes.
func (a changeVerbs) discardRecorded(ctx context.Context, c *connection, args []string) (bool, error) {
	if len(args) != 1 || !c.local || !ids.ValidSandbox(args[0]) {
		return false, nil
	}
	all, err := candidates(ctx, c)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(all, func(t changesRef) bool { return t.id == args[0] || t.name == args[0] }) {
		return false, nil
	}
	err = c.DiscardRecordings(ctx, args[0])
	if err != nil {
		if errors.Is(err, crannog.ErrNotFound) {
			return false, nil
		}
		return false, fail("discard the recordings of "+args[0], err)
	}
	a.note("discarded the recordings of %s", args[0])
	return true, nil
}

// discarded describes what discard removes.
func discarded(t changesRef, set api.Changes) string {
	what := "the changes of " + t.name
	if !t.retained {
		what = "sandbox " + t.name
	}
	return fmt.Sprintf("%s: %s", what, counts(set.Files, set.Added, set.Removed))
}

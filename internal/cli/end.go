package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// endVerbs are the commands that end sandboxes and remove their data.
type endVerbs struct{ *app }

func (a endVerbs) stopCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stop SANDBOX...", Short: "End sandboxes, and keep them in the list", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeMany,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, "stop", func(sb *crannog.Sandbox) error {
				if sb.Info().State == "stopped" {
					return nil
				}
				return sb.SetTimeout(cmd.Context(), 0)
			})
		},
	}
}

func (a endVerbs) rmCommand() *cobra.Command {
	var all, yes, dry bool
	cmd := &cobra.Command{
		Use: "rm SANDBOX...", Aliases: []string{"kill"}, Short: "End sandboxes, or remove ended ones from the list",
		Long: "End sandboxes, or remove ended ones from the list. The events and flows of an ended\n" +
			"sandbox are kept for the time of the setting retention, a day by default, for\n" +
			"crannog logs and crannog net log; a second rm, or crannog prune, removes them at\n" +
			"once. A paused sandbox is removed with its saved state. The audit log (crannog audit)\n" +
			"keeps its entries.",
		ValidArgsFunction: a.completeMany,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef("name sandboxes, or --all")
			}
			if all {
				return a.rmAll(cmd.Context(), yes, dry)
			}
			if dry {
				return a.each(cmd.Context(), args, "find", func(*crannog.Sandbox) error { return nil })
			}
			return a.each(cmd.Context(), args, "remove", func(sb *crannog.Sandbox) error { return sb.Kill(cmd.Context()) })
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "all running and paused ones")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed")
	return cmd
}

func (a endVerbs) rmAll(ctx context.Context, yes, dry bool) error {
	return a.with(ctx, func(c *connection) error {
		rows, err := c.List(ctx, crannog.ListOptions{States: alive})
		if err != nil {
			return fail("list sandboxes", err)
		}
		if dry {
			return a.done(sandboxIDs(rows))
		}
		if err := a.confirm(yes, len(rows) == 0, fmt.Sprintf("remove %d running or paused sandboxes", len(rows))); err != nil {
			return err
		}
		var removed []string
		var problems []error
		for _, row := range rows {
			sb, err := c.Get(ctx, row.ID)
			if err == nil {
				err = sb.Kill(ctx)
			}
			if err != nil && !errors.Is(err, crannog.ErrNotFound) {
				problems = append(problems, fail("remove "+row.ID, err))
				continue
			}
			removed = append(removed, row.ID)
		}
		return errors.Join(append(problems, a.done(removed))...)
	})
}

func (a endVerbs) pruneCommand() *cobra.Command {
	var yes, dry bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove ended sandboxes and data that nothing uses", Args: cobra.NoArgs,
		Long: "Remove ended sandboxes from the list. Delete saved states that no sandbox or snapshot\n" +
			"uses, the retained changes of runs (crannog diff), and recordings of runs. Snapshots\n" +
			"and paused sandboxes stay; crannog snapshot rm and crannog rm remove them.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				rows, err := c.List(cmd.Context(), crannog.ListOptions{States: []string{"stopped"}})
				if err != nil {
					return fail("list sandboxes", err)
				}
				if dry {
					return a.done(sandboxIDs(rows))
				}
				what, nothing, err := a.describePrune(cmd.Context(), c, rows)
				if err != nil {
					return err
				}
				if err := a.confirm(yes, nothing, what); err != nil {
					return err
				}
				stop := a.progress("removing ended sandboxes")
				pruned, err := c.Prune(cmd.Context())
				stop()
				if err != nil {
					return fail("remove ended sandboxes", err)
				}
				return a.printPruned(pruned)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed")
	return cmd
}

// describePrune describes what a prune would remove, and reports whether there is nothing to
// remove. It counts retained changes separately, because a person may still want to apply them.
func (a endVerbs) describePrune(ctx context.Context, c *connection, rows []api.Sandbox) (what string, nothing bool, err error) {
	what = fmt.Sprintf("remove %d ended sandboxes", len(rows))
	if !c.local {
		return what, len(rows) == 0, nil
	}
	kept, err := c.KeptChanges(ctx)
	if err != nil {
		return "", false, fail("list retained changes", err)
	}
	if len(kept) > 0 {
		what += fmt.Sprintf(", and the retained changes of %d runs", len(kept))
	}
	return what, len(rows)+len(kept) == 0, nil
}

// printPruned prints the removed data and its size.
func (a endVerbs) printPruned(p api.Pruned) error {
	if a.json {
		return a.object(p)
	}
	if p.FreedBytes > 0 {
		a.note("freed %s of saved states", bytesText(p.FreedBytes))
	}
	return a.done(p.Removed)
}

// each calls do for every named sandbox. It continues after an error, so that one wrong name does
// not stop the others.
func (a *app) each(ctx context.Context, refs []string, verb string, do func(*crannog.Sandbox) error) error {
	return a.with(ctx, func(c *connection) error { return a.eachOf(ctx, c, refs, verb, do) })
}

// eachOf is each with an open connection.
func (a *app) eachOf(ctx context.Context, c *connection, refs []string, verb string, do func(*crannog.Sandbox) error) error {
	return a.eachNamed(ctx, refs, func(ref string) (string, error) {
		sb, err := c.find(ctx, ref)
		if err != nil {
			return "", err
		}
		if err := do(sb); err != nil {
			return "", fail(verb+" "+ref, err)
		}
		return sb.ID(), nil
	})
}

// eachNamed prints the IDs of the sandboxes for which do succeeded.
func (a *app) eachNamed(ctx context.Context, refs []string, do func(ref string) (id string, err error)) error {
	var done []string
	err := a.every(ctx, refs, func(ref string) error {
		id, err := do(ref)
		if err == nil {
			done = append(done, id)
		}
		return err
	})
	return errors.Join(err, a.done(done))
}

// every calls do for each name until it is interrupted. It prints all errors but the last, which it
// returns.
func (a *app) every(ctx context.Context, names []string, do func(string) error) error {
	var last error
	for _, name := range names {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := do(name); err != nil {
			if last != nil {
				a.report(last)
			}
			last = err
		}
	}
	return last
}

func sandboxIDs(rows []api.Sandbox) []string {
	var list []string
	for _, row := range rows {
		list = append(list, row.ID)
	}
	return list
}

// notify returns a context that ends with a signal. It does not change ctx.
func notify(ctx context.Context, signals ...os.Signal) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, signals...)
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

func (a stateVerbs) snapshotCommand() *cobra.Command {
	var req api.CreateSnapshot
	cmd := &cobra.Command{
		Use: "snapshot SANDBOX...", Short: "Take a snapshot; ls and rm manage snapshots",
		Long: "Take a snapshot of a running sandbox, with memory, processes and files. The sandbox\n" +
			"pauses briefly and continues. crannog run --from starts a new sandbox from it, crannog\n" +
			"rollback returns a sandbox to it. If several snapshots have one name, the name means\n" +
			"the newest. Name a sandbox that is called ls or rm by its ID here.",
		Example:           "  crannog snapshot dev --name installed\n  crannog run --from installed -- pytest\n  crannog snapshot ls",
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeStates("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name a sandbox").hint("crannog snapshot ls lists snapshots")
			case len(args) > 1 && req.Name != "":
				return usagef("--name needs a single sandbox, because only the last snapshot would have the name")
			}
			return a.snapshot(cmd.Context(), args, req)
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "`name` of the snapshot")
	cmd.Flags().BoolVar(&req.FilesOnly, "files-only", false, "save files only: any version can start from it")
	cmd.AddCommand(a.snapshotListCommand(), a.snapshotRemoveCommand())
	return cmd
}

func (a stateVerbs) snapshot(ctx context.Context, refs []string, req api.CreateSnapshot) error {
	return a.withInterrupt(ctx, func(ctx context.Context, c *connection) error {
		var snapshots []api.Snapshot
		err := a.every(ctx, refs, func(ref string) error {
			sb, err := c.find(ctx, ref)
			if err != nil {
				return err
			}
			if err := checkNotEnded(sb.Info()); err != nil {
				return err
			}
			defer a.progress("saving the state of " + ref)()
			snap, err := sb.Snapshot(ctx, req)
			if err != nil {
				return fail("snapshot "+ref, err)
			}
			a.reportHostFiles(snap.ID, snap.HostFiles)
			snapshots = append(snapshots, snap)
			return nil
		})
		return errors.Join(err, a.printNewSnapshots(snapshots))
	})
}

// printNewSnapshots prints one snapshot as an object, as inspect does, and several as an array.
func (a stateVerbs) printNewSnapshots(snapshots []api.Snapshot) error {
	switch {
	case a.json && len(snapshots) == 1:
		return a.object(snapshots[0])
	case a.json:
		return a.object(append([]api.Snapshot{}, snapshots...))
	}
	for _, snap := range snapshots {
		fmt.Fprintln(a.Stdout, snap.ID)
	}
	return nil
}

func (a stateVerbs) snapshotListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls [SANDBOX]", Aliases: []string{"list"}, Short: "List snapshots, or those of one sandbox", Args: cobra.MaximumNArgs(1),
		Long: "List snapshots, or those of one sandbox. SIZE is the size of the snapshot, OWN the\n" +
			"disk space that removing it would free: snapshots share common parts.",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				var o crannog.SnapshotOptions
				if len(args) == 1 {
					sb, err := c.find(cmd.Context(), args[0])
					if err != nil {
						return err
					}
					o.Sandbox = sb.ID()
				}
				rows, err := c.Snapshots(cmd.Context(), o)
				if err != nil {
					return fail("list snapshots", err)
				}
				return a.printSnapshots(&f, rows)
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a stateVerbs) printSnapshots(f *listFlags, rows []api.Snapshot) error {
	now := time.Now()
	head := []string{"ID", "NAME", "SANDBOX", "KIND", "MADE", "SIZE", "OWN"}
	return list(&a.terminal, f, rows, func(s api.Snapshot) string { return s.ID }, head, func(s api.Snapshot) []string {
		return []string{s.ID, s.Name, s.Sandbox, kindOf(s), ago(s.CreatedAt, now), bytesText(s.Bytes), bytesText(s.OwnBytes)}
	})
}

// kindOf returns the kind of a snapshot: "files" or "full".
func kindOf(s api.Snapshot) string {
	if s.FilesOnly {
		return "files"
	}
	return "full"
}

func (a stateVerbs) snapshotRemoveCommand() *cobra.Command {
	var dry bool
	cmd := &cobra.Command{
		Use: "rm SNAPSHOT...", Aliases: []string{"remove"}, Short: "Remove snapshots", Args: cobra.MinimumNArgs(1),
		Long:              "Remove snapshots. Sandboxes and snapshots created from them stay.",
		ValidArgsFunction: a.completeSnapshots,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.eachNamed(ctx, args, func(ref string) (string, error) {
					snap, err := c.findSnapshot(ctx, ref)
					if err != nil || dry {
						return snap.ID, err
					}
					if err := c.RemoveSnapshot(ctx, snap.ID); err != nil {
						return "", fail("remove snapshot "+ref, err)
					}
					return snap.ID, nil
				})
			})
		},
	}
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be removed")
	return cmd
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
)

// stateVerbs are the commands that change the state of a sandbox, and those about snapshots.
type stateVerbs struct{ *app }

func (a stateVerbs) pauseCommand() *cobra.Command {
	var filesOnly bool
	cmd := &cobra.Command{
		Use: "pause SANDBOX...", Short: "Pause sandboxes: save memory, processes and files", Args: cobra.MinimumNArgs(1),
		Long: "Save the memory, processes and files of sandboxes, and end their processes. A paused\n" +
			"sandbox uses no memory, keeps its name and ID, and does not expire. crannog resume\n" +
			"continues it where it was. Its connections are closed. Saved memory refers to host\n" +
			"files that programs have mapped. Copies of these files are kept, so that the sandbox\n" +
			"can continue after the host's packages have changed; pause reports this, and crannog\n" +
			"inspect lists the files.",
		Example:           "  crannog pause dev\n  crannog pause --files-only dev",
		ValidArgsFunction: a.completeStates("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.eachLong(cmd.Context(), args, "pause", func(ctx context.Context, sb *crannog.Sandbox) error {
				if err := checkNotEnded(sb.Info()); err != nil {
					return err
				}
				switch {
				case sb.Info().State == "paused":
					return nil
				case filesOnly:
					return sb.PauseFiles(ctx)
				}
				if err := sb.Pause(ctx); err != nil {
					return err
				}
				a.reportHostFiles(label(sb.Info()), sb.Info().HostFiles)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "save only files: the sandbox boots again when it is resumed")
	return cmd
}

func (a stateVerbs) resumeCommand() *cobra.Command {
	var (
		ttl                 string
		filesOnly, yes, dry bool
	)
	cmd := &cobra.Command{
		Use: "resume SANDBOX...", Short: "Resume paused sandboxes", Args: cobra.MinimumNArgs(1),
		Long: "Resume paused sandboxes where they were. A running sandbox stays as it is. With\n" +
			"--files-only a paused sandbox boots again with its files, and its saved memory and\n" +
			"processes are deleted; the command asks first.",
		Example:           "  crannog resume dev\n  crannog resume --files-only --yes dev",
		ValidArgsFunction: a.completeStates("paused", "pausing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := lifetime(ttl)
			if err != nil {
				return err
			}
			if dry {
				return a.each(cmd.Context(), args, "find", func(sb *crannog.Sandbox) error { return checkNotEnded(sb.Info()) })
			}
			if err := a.confirm(yes, !filesOnly, fmt.Sprintf("boot %s again, and delete its saved memory and processes", nameOrCount(args))); err != nil {
				return err
			}
			return a.eachLong(cmd.Context(), args, "resume", func(ctx context.Context, sb *crannog.Sandbox) error {
				if err := checkNotEnded(sb.Info()); err != nil {
					return err
				}
				if filesOnly {
					return sb.ResumeFiles(ctx, d)
				}
				return sb.Resume(ctx, d)
			})
		},
	}
	cmd.Flags().StringVar(&ttl, "ttl", "", "`time` after which it ends by itself (default: as at its creation)")
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "restore files only: the sandbox boots again")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be resumed")
	return cmd
}

func (a stateVerbs) resetCommand() *cobra.Command {
	var yes, dry bool
	cmd := &cobra.Command{
		Use: "reset SANDBOX...", Short: "Reset sandboxes to their initial state", Args: cobra.MinimumNArgs(1),
		Long: "Reset sandboxes in place: to the snapshot that they were created from, or to a fresh\n" +
			"boot of their template. They keep their names and IDs; later changes are lost.",
		ValidArgsFunction: a.completeMany,
		RunE: func(cmd *cobra.Command, args []string) error {
			if dry {
				return a.each(cmd.Context(), args, "find", func(sb *crannog.Sandbox) error { return checkNotEnded(sb.Info()) })
			}
			if err := a.confirm(yes, false, fmt.Sprintf("reset %s to its initial state, and lose all later changes", nameOrCount(args))); err != nil {
				return err
			}
			return a.eachLong(cmd.Context(), args, "reset", func(ctx context.Context, sb *crannog.Sandbox) error {
				if err := checkNotEnded(sb.Info()); err != nil {
					return err
				}
				return sb.Reset(ctx)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be reset")
	return cmd
}

func (a stateVerbs) rollbackCommand() *cobra.Command {
	var yes, dry bool
	cmd := &cobra.Command{
		Use: "rollback SANDBOX [SNAPSHOT]", Short: "Roll a sandbox back to a snapshot", Args: cobra.RangeArgs(1, 2),
		Long: "Roll a sandbox back to a snapshot, in place. Without SNAPSHOT, use the snapshot that it\n" +
			"came from or that was last taken of it; at its start, use its newest one. The sandbox\n" +
			"keeps its name and ID; later changes are lost, and connections are closed.",
		Example:           "  crannog snapshot dev --name clean\n  crannog rollback dev clean",
		ValidArgsFunction: a.completeRollback,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.rollback(cmd.Context(), args, yes, dry)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print the snapshot that would be used")
	return cmd
}

func (a stateVerbs) rollback(ctx context.Context, args []string, yes, dry bool) error {
	return a.with(ctx, func(c *connection) error {
		sb, err := c.find(ctx, args[0])
		if err != nil {
			return err
		}
		if err := checkNotEnded(sb.Info()); err != nil {
			return err
		}
		var snap api.Snapshot
		if len(args) == 2 {
			snap, err = c.findSnapshot(ctx, args[1])
		} else {
			snap, err = c.latestSnapshot(ctx, args[0], sb.Info())
		}
		if err != nil {
			return err
		}
		name := first(snap.Name, snap.ID)
		if dry {
			return a.done([]string{snap.ID})
		}
		if err := a.confirm(yes, false, fmt.Sprintf("roll %s back to %s, and lose all later changes", args[0], name)); err != nil {
			return err
		}
		// Signals are caught only from here on, so that an interrupt of the prompt ends the program
		// as usual.
		return interruptible(ctx, func(ctx context.Context) error {
			stop := a.queueProgress(ctx, c, "rolling "+args[0]+" back to "+name, aboutSandbox(sb.ID()))
			err := sb.Rollback(ctx, snap.ID)
			stop()
			if err != nil {
				return fail("roll "+args[0]+" back to "+name, err)
			}
			return a.done([]string{sb.ID()})
		})
	})
}

// latestSnapshot returns the snapshot from which a sandbox was last restored. If there is none, it
// returns the newest snapshot of the sandbox.
func (c *connection) latestSnapshot(ctx context.Context, ref string, info api.Sandbox) (api.Snapshot, error) {
	if info.At != "" {
		return c.findSnapshot(ctx, info.At)
	}
	taken, err := c.Snapshots(ctx, crannog.SnapshotOptions{Sandbox: info.ID})
	switch {
	case err != nil:
		return api.Snapshot{}, fail("list snapshots of "+ref, err)
	case len(taken) > 0:
		return taken[0], nil
	case info.Origin != "":
		// The sandbox cannot be reset to its initial state either, because that was this snapshot.
		return api.Snapshot{}, usagef("the snapshot of sandbox %s was removed, and there is no other", ref).
			hint("name a snapshot; crannog snapshot ls lists them")
	}
	return api.Snapshot{}, usagef("sandbox %s has no snapshots, and did not start from one", ref).
		hint("crannog reset " + ref + " resets it to its initial state")
}

// nameOrCount returns the name if there is one sandbox, and otherwise their number.
func nameOrCount(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d sandboxes", len(names))
}

// lifetime parses --ttl. It returns zero if the flag was not given.
func lifetime(ttl string) (time.Duration, error) {
	if ttl == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(ttl)
	if err != nil || d == 0 {
		return 0, usagef("--ttl: %q is not a time such as 10m", ttl)
	}
	return d, nil
}

// withInterrupt connects to the server and calls work, which may take long and is interruptible.
func (a *app) withInterrupt(ctx context.Context, work func(context.Context, *connection) error) error {
	return interruptible(ctx, func(ctx context.Context) error {
		return a.with(ctx, func(c *connection) error { return work(ctx, c) })
	})
}

// interruptible calls work, which may take long. The first interrupt cancels work, so that the
// server ends the operation too. A second interrupt ends the program at once.
func interruptible(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals, release := notifySignals()
	defer release()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case s := <-signals:
				if sig, ok := s.(syscall.Signal); ok && (sig == syscall.SIGINT || sig == syscall.SIGTERM || sig == syscall.SIGHUP) {
					// The work may be done already, except for writing it to the disk, which the
					// next process can do too. So the next signal ends the program.
					signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
					cancel(signalError(sig))
				}
			case <-done:
				return
			}
		}
	}()
	err := work(ctx)
	if sig, ok := errors.AsType[signalError](context.Cause(ctx)); ok && err != nil {
		return exitCode(128 + int(sig))
	}
	return err
}

// eachLong is each for actions that may take long.
func (a *app) eachLong(ctx context.Context, refs []string, verb string, do func(context.Context, *crannog.Sandbox) error) error {
	return a.withInterrupt(ctx, func(ctx context.Context, c *connection) error {
		return a.eachOf(ctx, c, refs, verb, func(sb *crannog.Sandbox) error {
			defer a.queueProgress(ctx, c, verb+" "+label(sb.Info()), aboutSandbox(sb.ID()))()
			return do(ctx, sb)
		})
	})
}

// ensureRunning returns an error for a sandbox that cannot run a command. It waits for a sandbox
// that is being resumed, and resumes a sandbox that would resume on traffic.
func (a *app) ensureRunning(ctx context.Context, sb *crannog.Sandbox) error {
	info := sb.Info()
	isPaused := info.State == "pausing" || info.State == "paused"
	if info.State != "resuming" && (!isPaused || info.OnEnd == nil || !info.OnEnd.Wake) {
		return checkRunning(info)
	}
	defer a.progress("resuming " + label(info))()
	if err := sb.Resume(ctx, 0); err != nil {
		return fail("resume "+label(info), err)
	}
	return nil
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
)

func (a stateVerbs) forkCommand() *cobra.Command {
	var count int
	var ttl string
	var filesOnly bool
	cmd := &cobra.Command{
		Use: "fork SANDBOX", Short: "Copy a running sandbox", Args: cobra.ExactArgs(1),
		Long: "Copy a running sandbox with its memory, processes and files, and print the IDs of the\n" +
			"copies. Each copy continues independently from the same moment, with its own ID,\n" +
			"host name, machine ID and random numbers. Connections are not copied. A copy has the\n" +
			"remaining lifetime of the sandbox, unless --ttl is given.\n\n" +
			"With --files-only, memory and processes are not copied, and each copy boots again. An\n" +
			"engine that saves no memory copies files only.",
		Example:           "  crannog fork dev\n  for id in $(crannog fork dev -n 3); do crannog exec $id -- ./attempt & done",
		ValidArgsFunction: a.completeStates("running"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > 100 {
				return usagef("--count: %d is not from 1 to 100", count)
			}
			d, err := lifetime(ttl)
			if err != nil {
				return err
			}
			return a.fork(cmd.Context(), args[0], count, d, filesOnly)
		},
	}
	cmd.Flags().IntVarP(&count, "count", "n", 1, "`number` of copies")
	cmd.Flags().BoolVar(&filesOnly, "files-only", false, "copy files only: each copy boots again")
	cmd.Flags().StringVar(&ttl, "ttl", "", "`time` after which each copy ends by itself")
	return cmd
}

func (a stateVerbs) fork(ctx context.Context, ref string, count int, ttl time.Duration, filesOnly bool) error {
	return a.withInterrupt(ctx, func(ctx context.Context, c *connection) error {
		sb, err := c.find(ctx, ref)
		if err != nil {
			return err
		}
		info := sb.Info()
		if err := checkRunning(info); err != nil {
			return err
		}
		req := api.CreateFork{Count: count, FilesOnly: filesOnly}
		switch {
		case ttl > 0:
			req.TimeoutSeconds = ttl.Seconds()
		case info.EndsAt != nil:
			req.TimeoutSeconds = max(time.Until(*info.EndsAt), time.Second).Seconds()
		default:
			req.Forever = c.local
		}
		stop := a.progress(fmt.Sprintf("copying %s", label(info)))
		copies, err := sb.Fork(ctx, req)
		stop()
		infos := make([]api.Sandbox, 0, len(copies))
		for _, c := range copies {
			info := c.Info()
			info.AccessToken, info.TrafficToken = "", ""
			infos = append(infos, info)
		}
		if err != nil {
			err = fail("fork "+ref, err)
		}
		if a.json {
			return errors.Join(err, a.object(infos))
		}
		return errors.Join(err, a.done(sandboxIDs(infos)))
	})
}

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// listVerbs are the commands that show sandboxes, their processes and their use of resources.
type listVerbs struct{ *app }

// alive are the states of sandboxes that have not ended.
var alive = []string{"running", "pausing", "paused", "resuming"}

func (a listVerbs) lsCommand() *cobra.Command {
	var f listFlags
	var all bool
	var labels []string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List running and paused sandboxes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			metadata, err := pairsOf("--metadata", labels)
			if err != nil {
				return err
			}
			o := crannog.ListOptions{Metadata: metadata, States: alive}
			if all {
				o.States = []string{"all"}
			}
			return a.with(cmd.Context(), func(c *connection) error {
				rows, err := c.List(cmd.Context(), o)
				if err != nil {
					return fail("list sandboxes", err)
				}
				return a.printSandboxes(&f, rows)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include ended sandboxes")
	cmd.Flags().StringArrayVar(&labels, "metadata", nil, "only with the label `NAME=VALUE`")
	return cmd
}

func (a listVerbs) printSandboxes(f *listFlags, rows []api.Sandbox) error {
	now := time.Now()
	head := []string{"ID", "NAME", "TEMPLATE", "STATE", "STARTED", "ENDS", "ENGINE"}
	return list(&a.terminal, f, rows, func(s api.Sandbox) string { return s.ID }, head, func(s api.Sandbox) []string {
		state, ends := s.State, "never"
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		if s.EndsAt != nil {
			ends = ago(*s.EndsAt, now)
		}
		if s.PausedAt != nil {
			ends = "-"
			state += " " + ago(*s.PausedAt, now)
		}
		if s.StoppedAt != nil {
			ends = ago(*s.StoppedAt, now)
		}
		return []string{s.ID, s.Name, s.Template, state, ago(s.StartedAt, now), ends, s.Engine}
	})
}

// withSandbox finds a running sandbox.
func (a *app) withSandbox(ctx context.Context, ref string, work func(*connection, *crannog.Sandbox) error) error {
	return a.with(ctx, func(c *connection) error {
		sb, err := c.find(ctx, ref)
		if err != nil {
			return err
		}
		if err := a.ensureRunning(ctx, sb); err != nil {
			return err
		}
		return work(c, sb)
	})
}

func (a listVerbs) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect SANDBOX...", Short: "Show everything known about sandboxes, as JSON", Args: cobra.MinimumNArgs(1),
		Long: "Show everything known about sandboxes, as JSON: an object for one, an array for\n" +
			"several. Tokens are not shown. For a sandbox that has ended and is no longer listed,\n" +
			"the audit log is the source.",
		ValidArgsFunction: a.completeStates("all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				infos := make([]api.Sandbox, 0, len(args))
				for _, ref := range args {
					of, err := c.subject(cmd.Context(), ref)
					if err != nil {
						return err
					}
					info, err := c.info(cmd.Context(), of)
					if err != nil {
						return err
					}
					info.AccessToken, info.TrafficToken = "", ""
					infos = append(infos, info)
				}
				if len(infos) == 1 {
					return a.indented(infos[0])
				}
				return a.indented(infos)
			})
		},
	}
}

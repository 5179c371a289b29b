package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/sandbox"
)

// netVerbs are the commands about network requests of sandboxes.
type netVerbs struct{ *app }

func (a netVerbs) netCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "net", Short: "Show the network activity of sandboxes"}
	cmd.AddCommand(a.netLogCommand())
	return cmd
}

func (a netVerbs) netLogCommand() *cobra.Command {
	var o crannog.FlowOptions
	cmd := &cobra.Command{
		Use: "log SANDBOX", Short: "Show a sandbox's names, connections and requests", Args: cobra.ExactArgs(1),
		Long: "Show a sandbox's network activity: every DNS query, connection and request, with its\n" +
			"decision and rule. For a sandbox without a network, show the names that its programs\n" +
			"tried to resolve.",
		Example:           "  crannog net log mybox --denied\n  crannog net log @last\n  crannog net log -f mybox --json | jq .host",
		ValidArgsFunction: a.completeEnded,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(c *connection) error {
				of, err := c.subject(ctx, args[0])
				if err != nil {
					return err
				}
				if err := a.printAskedNames(ctx, of.sb); err != nil {
					return err
				}
				if of.sb == nil && !a.quiet {
					if info, err := c.info(ctx, of); err == nil && info.Network.Net == string(sandbox.NetNone) {
						a.note("sandbox %s had no network; the names that its programs tried to resolve are no longer available", of.name)
					}
				}
				return a.flows(ctx, of, o)
			})
		},
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "follow until the sandbox ends, or Ctrl-C")
	cmd.Flags().BoolVar(&o.Denied, "denied", false, "only denials")
	return cmd
}

// flows prints a sandbox's flows. Ctrl-C ends following without an error.
func (a netVerbs) flows(ctx context.Context, of subject, o crannog.FlowOptions) error {
	if o.Follow {
		var stop context.CancelFunc
		ctx, stop = notify(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
	}
	if err := of.flows(ctx, o, a.printFlow); err != nil && (!o.Follow || ctx.Err() == nil) {
		return fail("read the network flows of "+of.id, err)
	}
	return nil
}

// printAskedNames prints the names that programs tried to resolve in a sandbox without a network.
func (a netVerbs) printAskedNames(ctx context.Context, sb *crannog.Sandbox) error {
	if sb == nil {
		return nil
	}
	if info := sb.Info(); info.Network.Attached || info.State != "running" {
		return nil
	}
	names, err := sb.Asked(ctx)
	if err != nil {
		return fail("read the network flows of "+sb.ID(), err)
	}
	for _, name := range names {
		if err := a.printFlow(denial.Name(sb.ID(), name)); err != nil {
			return err
		}
	}
	return nil
}

func (a netVerbs) printFlow(r api.FlowRecord) error {
	if a.json {
		return a.object(r)
	}
	at := "                 "
	if !r.Time.IsZero() {
		at = r.Time.Local().Format("01-02 15:04:05.000")
	}
	_, err := fmt.Fprintf(a.Stdout, "%s  %-5s  %-9s  %s  rule=%s%s\n", at, r.Effect, r.Kind, denial.Subject(r), r.Rule, flowDetails(r))
	return err
}

// flowDetails returns the parts of a flow that not every flow has.
func flowDetails(r api.FlowRecord) string {
	var b strings.Builder
	if r.Status > 0 {
		fmt.Fprintf(&b, "  %d", r.Status)
	}
	if r.Sent+r.Received > 0 {
		fmt.Fprintf(&b, "  %d/%d bytes", r.Sent, r.Received)
	}
	if r.DurationMS > 0 {
		fmt.Fprintf(&b, "  %s", (time.Duration(r.DurationMS * float64(time.Millisecond))).Round(time.Millisecond))
	}
	if r.Approval != "" {
		fmt.Fprintf(&b, "  approval=%s", r.Approval)
	}
	if r.Error != "" {
		fmt.Fprintf(&b, "  (%s)", text.Strict(r.Error, 200))
	}
	if r.Probe {
		b.WriteString("  (tried by crannog before the sandbox was ready)")
	}
	return b.String()
}

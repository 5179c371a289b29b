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
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/host/text"
)

// approvalVerbs are the commands about approval requests, and their prompt at a command's terminal.
type approvalVerbs struct{ *app }

func (a approvalVerbs) approvalsCommand() *cobra.Command {
	var f listFlags
	var watch, all bool
	var sandbox string
	cmd := &cobra.Command{
		Use: "approvals [ID]", Short: "Show approval requests", Args: cobra.MaximumNArgs(1),
		Long: "Show approval requests: those that wait for a decision, or the details of one\n" +
			"request. crannog approve and crannog deny decide them.",
		Example:           "  crannog approvals --watch\n  crannog approvals a0123456789abcdef012",
		ValidArgsFunction: a.completeApprovals,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (watch || all || sandbox != "") {
				return usagef("name an approval, or use flags that select a list")
			}
			return a.with(cmd.Context(), func(c *connection) error {
				if sandbox != "" {
					target, err := c.subject(cmd.Context(), sandbox)
					if err != nil {
						return err
					}
					sandbox = target.id
				}
				switch {
				case len(args) == 1:
					return a.showApproval(cmd.Context(), c, args[0])
				case watch:
					return a.watchApprovals(cmd.Context(), c, sandbox)
				}
				return a.listApprovals(cmd.Context(), c, &f, all, sandbox)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print requests and decisions as they happen, until Ctrl-C")
	cmd.Flags().BoolVarP(&all, "all", "a", false, "include decided requests")
	cmd.Flags().StringVar(&sandbox, "sandbox", "", "only requests of this `sandbox`")
	return cmd
}

func (a approvalVerbs) listApprovals(ctx context.Context, c *connection, f *listFlags, all bool, sandbox string) error {
	o := crannog.ApprovalOptions{Sandbox: sandbox}
	if all {
		o.States = []string{"all"}
	}
	rows, err := c.Approvals(ctx, o)
	if err != nil {
		return fail("list approvals", err)
	}
	now := time.Now()
	head := []string{"ID", "SANDBOX", "KIND", "STATE", "ASKED", "ENDS", "SUMMARY"}
	return list(&a.terminal, f, rows, func(r api.Approval) string { return r.ID }, head, func(r api.Approval) []string {
		ends := "-"
		if approval.State(r.State).Open() {
			ends = ago(r.ExpiresAt, now)
		}
		return []string{r.ID, r.Sandbox, r.Kind, stateText(r), ago(r.CreatedAt, now), ends, inert(r.Summary)}
	})
}

// stateText returns the state of a request, with the number of decisions if several people must
// approve.
func stateText(r api.Approval) string {
	if r.Quorum <= 1 || r.State != string(approval.Pending) {
		return r.State
	}
	return fmt.Sprintf("%s (%d of %d)", r.State, approvalCount(r), r.Quorum)
}

// approvalCount returns the number of approvals that a request has.
func approvalCount(r api.Approval) int {
	n := 0
	for _, v := range r.Votes {
		if v.Granted {
			n++
		}
	}
	return n
}

// reportMissing explains that an approval was counted but more are required, and who else can
// approve. Otherwise the person would wait without knowing that others have to act.
func (a approvalVerbs) reportMissing(r api.Approval) {
	if missing := r.Quorum - approvalCount(r); r.State == string(approval.Pending) && missing > 0 {
		a.note("%d more needed, by %s", missing, approval.SecondPerson)
	}
}

// lineLength bounds a text that a sandbox chose, in bytes. The server bounds such texts too, but a
// client does not rely on a server of another owner.
const lineLength = 4096

// inert removes control characters, which could act on the terminal, and shortens a long text.
func inert(s string) string { return text.Strict(s, lineLength) }

func (a *app) showApproval(ctx context.Context, c *connection, id string) error {
	r, err := c.Approval(ctx, id)
	if err != nil {
		return fail("find approval "+inert(id), err)
	}
	if a.json {
		return a.object(r)
	}
	for _, line := range describe(r, time.Now()) {
		fmt.Fprintln(a.Stdout, line)
	}
	return nil
}

// describe returns an approval request as text, one fact per line.
func describe(r api.Approval, now time.Time) []string {
	var lines []string
	row := func(name, value string) { lines = append(lines, fmt.Sprintf("%-12s %s", name, inert(value))) }
	row("approval", r.ID)
	row("sandbox", r.Sandbox)
	row("asks", r.Kind+": "+r.Summary)
	for _, name := range approval.FactNames(r.Facts) {
		lines = append(lines, fmt.Sprintf("  %-22s %s", inert(name), inert(r.Facts[name])))
	}
	row("rule", r.Rule)
	state := stateText(r)
	if r.Reason != "" {
		state += ": " + r.Reason
	}
	row("state", state)
	for _, v := range r.Votes {
		row("", map[bool]string{true: "approved", false: "denied"}[v.Granted]+" by "+v.Who+" "+ago(v.At, now))
	}
	if approval.State(r.State).Open() {
		row("ends", ago(r.ExpiresAt, now))
	}
	if r.Always != "" {
		row("always", "would allow "+r.Always)
	}
	if r.Amendment != "" {
		row("always", "allows "+r.Amendment)
	}
	return lines
}

// watchApprovals prints events until a signal arrives.
func (a approvalVerbs) watchApprovals(ctx context.Context, c *connection, sandbox string) error {
	ctx, stop := notify(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return follow(ctx, c, sandbox, a.printEvent)
}

func (a approvalVerbs) printEvent(e api.ApprovalEvent) error {
	r := e.Approval
	switch {
	case a.json:
		return a.object(e)
	case a.quiet:
		_, err := fmt.Fprintln(a.Stdout, inert(r.ID))
		return err
	}
	text := r.Summary
	if e.Type != string(approval.Pending) && r.Reason != "" {
		text += " (" + r.Reason + ")"
	}
	_, err := fmt.Fprintf(a.Stdout, "%s  %-8s  %s  %s  %s  %s\n", time.Now().Format(time.TimeOnly),
		inert(e.Type), inert(r.ID), inert(r.Sandbox), inert(r.Kind), inert(text))
	return err
}

func (a approvalVerbs) approveCommand() *cobra.Command {
	var once, always bool
	var reason string
	cmd := &cobra.Command{
		Use: "approve ID", Short: "Approve a request of a sandbox", Args: cobra.ExactArgs(1),
		Long: "Approve one request of a sandbox, with exactly the facts that crannog approvals ID\n" +
			"shows. The grant is valid once. --always also adds the host to the sandbox's policy.",
		ValidArgsFunction: a.completeApprovals,
		RunE: func(cmd *cobra.Command, args []string) error {
			if once && always {
				return usagef("--once and --always exclude each other")
			}
			return a.with(cmd.Context(), func(c *connection) error {
				r, err := c.Approve(cmd.Context(), args[0], reason, always)
				if err != nil {
					return fail("approve "+inert(args[0]), err)
				}
				a.reportMissing(r)
				return a.printDecision(r)
			})
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "only this once (default)")
	cmd.Flags().BoolVar(&always, "always", false, "add the host to the sandbox's policy, so that no further approval is needed")
	cmd.Flags().StringVar(&reason, "reason", "", "`reason`, for the audit log")
	return cmd
}

func (a approvalVerbs) denyCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny ID --reason WHY", Short: "Deny a request of a sandbox", Args: cobra.ExactArgs(1),
		Long: "Deny a request of a sandbox, or withdraw a grant that was not used. The program\n" +
			"inside gets the reason.",
		ValidArgsFunction: a.completeApprovals,
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(reason) == "" {
				return usagef("deny needs a reason").hint("the program inside gets the reason: --reason 'use the mirror'")
			}
			return a.with(cmd.Context(), func(c *connection) error {
				r, err := c.Deny(cmd.Context(), args[0], reason)
				if err != nil {
					return fail("deny "+inert(args[0]), err)
				}
				return a.printDecision(r)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`why`; the program inside gets this text")
	return cmd
}

// printDecision prints the result of a decision.
func (a approvalVerbs) printDecision(r api.Approval) error {
	if a.json {
		return a.object(r)
	}
	_, err := fmt.Fprintln(a.Stdout, inert(r.ID))
	return err
}

// completeApprovals completes the IDs of requests that wait for a decision.
func (a approvalVerbs) completeApprovals(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	conf, err := config.Load(a.home, a.configFile)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.config = conf
	if conf.Client.URL == "" && !answers(ctx, conf.Socket()) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var found []cobra.Completion
	// After an error there are no completions, because completion cannot show errors.
	_ = a.with(ctx, func(c *connection) error {
		rows, err := c.Approvals(ctx, crannog.ApprovalOptions{})
		for _, r := range rows {
			found = append(found, cobra.CompletionWithDesc(inert(r.ID), inert(r.Summary)))
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/sandbox"
)

// policyChange is the output of policy set.
type policyChange struct {
	ID      string      `json:"id"`
	Network api.Network `json:"network"`
	// Wider lists what the new policy allows and the old one did not.
	Wider []string `json:"wider"`
}

func (a policyVerbs) policySetCommand() *cobra.Command {
	var f accessFlags
	var dry bool
	cmd := &cobra.Command{
		Use: "set SANDBOX", Short: "Change the policy of a running sandbox", Args: cobra.ExactArgs(1),
		Long: "Change the policy of a running sandbox. The flags replace those that it was created\n" +
			"with. Only its level stays, unless the flags or a policy file name one; --net\n" +
			"open has its own level. Connections that are no longer allowed are closed. The\n" +
			"command prints what became wider. A sandbox that was created without a network gets\n" +
			"none, and path masks do not change.",
		Example:           "  crannog policy set mybox --allow example.com\n  crannog policy set mybox --net none\n  crannog policy set mybox --policy policy.yaml --dry-run",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.level == "" && f.net == "" && f.policy == "" && len(f.allow)+len(f.artifacts) == 0 {
				return usagef("name the new policy: --allow, --net, --policy, --level or --artifact").hint("crannog policy set " + args[0] + " --net none removes the network")
			}
			if err := checkAllowed(f.allow); err != nil {
				return err
			}
			return a.withSandbox(cmd.Context(), args[0], func(_ *connection, sb *crannog.Sandbox) error {
				return a.setPolicy(cmd.Context(), sb, &f, dry)
			})
		},
	}
	f.add(cmd.Flags())
	f.offer(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would become wider, and change nothing")
	return cmd
}

func (a policyVerbs) setPolicy(ctx context.Context, sb *crannog.Sandbox, f *accessFlags, dry bool) error {
	merged, err := f.withKept(sb.Info().Network)
	if err != nil {
		return err
	}
	access, err := merged.access()
	if err != nil {
		return err
	}
	before, err := policyNow(ctx, sb)
	if err != nil {
		return err
	}
	if dry {
		after, err := merged.resultingPolicy(before)
		if err != nil {
			return fail("compile the policy", err)
		}
		return a.printChange(policyChange{sb.ID(), sb.Info().Network, policy.Widen(before, after)}, dry)
	}
	if err := sb.SetAccess(ctx, access); err != nil {
		return fail("change the policy of "+sb.ID(), err)
	}
	after, err := policyNow(ctx, sb)
	if err != nil {
		return err
	}
	return a.printChange(policyChange{sb.ID(), sb.Info().Network, policy.Widen(before, after)}, dry)
}

// withKept returns the flags together with the parts of the present policy that a change keeps.
func (b *accessFlags) withKept(current api.Network) (accessFlags, error) {
	merged := *b
	access, err := b.requestedAccess()
	if err != nil {
		return merged, err
	}
	namesLevel := b.level != "" || slices.ContainsFunc(access.Documents, func(d policy.Document) bool { return d.Level != "" })
	if !namesLevel && b.net != "open" && current.Net != "open" {
		// An open network has its own level, which is removed with it.
		merged.level = current.Level
	}
	if b.net == "" && len(b.allow) == 0 && b.policy == "" {
		// Other flags change the policy, but not whether there is a network.
		merged.net = string(sandbox.NetPolicy)
		if !current.Attached {
			merged.net = string(sandbox.NetNone)
		}
	}
	return merged, nil
}

// policyNow returns the policy of a sandbox that is in force.
func policyNow(ctx context.Context, sb *crannog.Sandbox) (*policy.Policy, error) {
	text, err := sb.Policy(ctx)
	if err != nil {
		return nil, fail("read the policy of "+sb.ID(), err)
	}
	return compilePolicy(text)
}

// resultingPolicy returns the policy that results from the flags, combined with the organisation's
// and the project's documents in force.
func (b *accessFlags) resultingPolicy(before *policy.Policy) (*policy.Policy, error) {
	access, err := b.requestedAccess()
	if err != nil {
		return nil, err
	}
	settings := sandbox.Settings{Level: before.Level()}
	for _, l := range before.Layers() {
		switch l.Kind {
		case policy.LayerOrganisation:
			settings.Organisation = &l.Document
		case policy.LayerProject:
			settings.Project = &l.Document
		}
	}
	p, _, err := access.Compile(settings)
	return p, err
}

func (a policyVerbs) printChange(c policyChange, dry bool) error {
	if c.Wider == nil {
		c.Wider = []string{}
	}
	if a.json {
		return a.object(c)
	}
	if a.quiet {
		_, err := fmt.Fprintln(a.Stdout, c.ID)
		return err
	}
	for _, w := range c.Wider {
		fmt.Fprintf(a.Stdout, "wider: %s\n", oneLine(w))
	}
	if len(c.Wider) == 0 {
		fmt.Fprintln(a.Stdout, "the new policy allows nothing that the old one did not")
	}
	if dry {
		fmt.Fprintln(a.Stdout, "nothing was changed")
		return nil
	}
	_, err := fmt.Fprintf(a.Stdout, "%s: level %s, %s\n", c.ID, c.Network.Level, c.Network.Policy)
	return err
}

package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// explanation is the output of policy explain.
type explanation struct {
	Request string `json:"request"`
	egress.Decision
	Steps []policy.Step `json:"steps"`
}

func (a policyVerbs) policyExplainCommand() *cobra.Command {
	var f accessFlags
	cmd := &cobra.Command{
		Use: "explain [SANDBOX] METHOD URL", Short: "Show which rule decides a request, and why", Args: cobra.RangeArgs(2, 3),
		Long: "Show what the policy of a sandbox, or of flags of run, decides about a request, and by\n" +
			"which rule. Nothing is sent. CONNECT HOST:PORT is a connection that the gateway does\n" +
			"not inspect. Names are not resolved, so rules about addresses are not evaluated.\n" +
			"export PATH and remove PATH stand for exporting a file below the workspace, and for\n" +
			"removing it on the host too. The exit code is 0 if the policy\n" +
			"allows the request, 1 if it asks or denies, 2 if it cannot be decided.",
		Example: "  crannog policy explain mybox GET https://api.github.com/user\n" +
			"  crannog policy explain --policy policy.yaml POST https://api.github.com/repos/a/b/pulls\n" +
			"  crannog policy explain --net dev CONNECT db.example.com:5432\n" +
			"  crannog policy explain --level strict export src/main.go",
		Annotations: map[string]string{"code": "check"},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.completeOne(cmd, args, start)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := ""
			if len(args) == 3 {
				ref, args = args[0], args[1:]
			}
			isExport := args[0] == "export" || args[0] == "remove"
			var r policy.Request
			if !isExport {
				var err error
				if r, err = requestOf(args[0], args[1]); err != nil {
					return err
				}
			}
			if ref == "" {
				if err := a.assumeNetwork(&f); err != nil {
					return err
				}
			}
			p, err := a.policyFor(cmd.Context(), ref, &f)
			if err != nil {
				return err
			}
			d, steps := p.ExplainExport(args[1], args[0] == "remove")
			if !isExport {
				d, steps = p.Foresee(r)
			}
			if err := a.printExplanation(explanation{strings.Join(args, " "), d, steps}); err != nil {
				return err
			}
			if d.Effect == egress.Ask {
				a.notePeople(p)
			}
			if d.Effect != egress.Allow {
				return exitCode(codeFound)
			}
			return nil
		},
	}
	f.add(cmd.Flags())
	f.offer(cmd)
	return cmd
}

// assumeNetwork selects the level's network rules if the flags give no network, because a
// user who names only a level wants to see them.
func (a policyVerbs) assumeNetwork(f *accessFlags) error {
	access, err := f.requestedAccess()
	if err != nil {
		return err
	}
	if f.net == "" && !access.Linked() {
		f.net = string(sandbox.NetPolicy)
		a.note("with these flags, run gives no network; the decision is that of --net policy")
	}
	return nil
}

// requestOf parses a method and a URL, or CONNECT and a host with a port.
func requestOf(method, target string) (policy.Request, error) {
	r, err := policy.ParseTarget(method, target)
	if err != nil {
		return r, usagef("%s", fault.PublicText(err)).hint("crannog policy explain GET https://example.com/path")
	}
	return r, nil
}

func (a policyVerbs) printExplanation(e explanation) error {
	if a.json {
		return a.object(e)
	}
	fmt.Fprintf(a.Stdout, "%s: %s\n", e.Effect, oneLine(e.Request))
	fmt.Fprintf(a.Stdout, "  rule    %s (%s)\n", oneLine(e.Rule), oneLine(e.Layer))
	if e.Reason != "" {
		fmt.Fprintf(a.Stdout, "  reason  %s\n", oneLine(e.Reason))
	}
	switch {
	case e.Effect == egress.Ask:
		// There is no approval request yet, and therefore no ID.
		fmt.Fprintln(a.Stdout, "  allow   a request needs an approval: crannog approvals shows the request and its ID,")
		fmt.Fprintln(a.Stdout, "          crannog approve ID or crannog deny ID decides it")
	case e.Fix != "":
		fmt.Fprintf(a.Stdout, "  allow   %s\n", oneLine(e.Fix))
	}
	fmt.Fprintf(a.Stdout, "  policy  %s\n", e.Policy)
	rows := make([][]string, 0, len(e.Steps))
	for _, s := range e.Steps {
		rows = append(rows, []string{s.Layer, string(s.Effect), s.Rule, s.Text})
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	return table(a.Stdout, []string{"LAYER", "EFFECT", "RULE", "STEP"}, rows)
}

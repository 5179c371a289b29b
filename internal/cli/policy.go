package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// policyVerbs are the commands about network policies: crannog policy.
type policyVerbs struct{ *app }

func (a policyVerbs) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "policy", Short: "Show, check, test and change policies", Args: cobra.ArbitraryArgs,
		Long: "Show, check, test, explain and change policies, which limit what sandboxes may do.\n" +
			"docs/reference/policy.md describes the documents; crannog help network summarises\n" +
			"them.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command policy %s", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.policyShowCommand(), a.policyCheckCommand(), a.policyTestCommand(), a.policyExplainCommand(), a.policySetCommand())
	return cmd
}

func (a policyVerbs) policyShowCommand() *cobra.Command {
	var f accessFlags
	var layers bool
	cmd := &cobra.Command{
		Use: "show [SANDBOX]", Short: "Show the policy of a sandbox, a level or a network", Args: cobra.MaximumNArgs(1),
		Long: "Show the effective policy of a sandbox as one document, or the policy that flags of run\n" +
			"would result in. --level alone shows the built-in level with its comments, and --net\n" +
			"alone shows what that network adds to a level.",
		Example:           "  crannog policy show mybox\n  crannog policy show --level strict\n  crannog policy show --net dev",
		Annotations:       map[string]string{"code": "check"},
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := ""
			if len(args) == 1 {
				ref = args[0]
			}
			text, ok, err := f.builtInText(ref)
			if err != nil {
				return err
			}
			if ok && !a.json {
				_, err := io.WriteString(a.Stdout, text)
				return err
			}
			p, err := a.policyFor(cmd.Context(), ref, &f)
			if err != nil {
				return err
			}
			return a.printPolicy(p, layers)
		},
	}
	f.add(cmd.Flags())
	f.offer(cmd)
	cmd.Flags().BoolVar(&layers, "layers", false, "print the documents that it was compiled from, one after the other")
	return cmd
}

// builtInText returns the text of a built-in level or network, if the flags select only one of
// these.
func (b *accessFlags) builtInText(ref string) (string, bool, error) {
	if ref != "" || b.policy != "" || len(b.allow) > 0 || (b.level == "") == (b.net == "") || b.net == "policy" {
		return "", false, nil
	}
	if _, err := b.access(); err != nil {
		return "", false, err
	}
	if b.level != "" {
		text, err := policy.LevelText(b.level)
		return string(text), true, err
	}
	d := map[string]func() policy.Document{"none": policy.None, "dev": policy.Dev, "open": policy.Open}[b.net]()
	text, err := d.YAML()
	return text, true, err
}

// policyFor returns the policy of a sandbox, or the policy that results from flags and settings.
func (a policyVerbs) policyFor(ctx context.Context, ref string, f *accessFlags) (*policy.Policy, error) {
	hasFlags := f.level != "" || f.net != "" || f.policy != "" || len(f.allow) > 0
	if ref == "" {
		access, err := f.requestedAccess()
		if err != nil {
			return nil, err
		}
		settings, err := a.settings()
		if err != nil {
			return nil, err
		}
		p, _, err := access.Compile(settings)
		if err != nil {
			return nil, fail("compile the policy", err)
		}
		return p, nil
	}
	if hasFlags {
		return nil, usagef("name a sandbox, or use --level, --policy, --net and --allow, not both").
			hint("crannog policy set changes a sandbox's")
	}
	var p *policy.Policy
	err := a.with(ctx, func(c *connection) error {
		sb, err := c.find(ctx, ref)
		if err != nil {
			return err
		}
		text, err := sb.Policy(ctx)
		if err != nil {
			return fail("read the policy of "+sb.ID(), err)
		}
		p, err = compilePolicy(text)
		return err
	})
	return p, err
}

// requestedAccess returns the access that flags request.
func (b *accessFlags) requestedAccess() (sandbox.Access, error) {
	in, err := b.access()
	if err != nil {
		return sandbox.Access{}, err
	}
	out := sandbox.Access{Level: in.Level, Net: sandbox.Net(in.Net), Allow: in.Allow}
	if in.Policy != "" {
		d, err := policy.Parse([]byte(in.Policy))
		if err != nil {
			return out, err
		}
		out.Documents = []policy.Document{d}
	}
	if len(in.Artifacts) > 0 {
		d, err := policy.Artifacts(in.Artifacts...)
		if err != nil {
			return out, err
		}
		out.Documents = append(out.Documents, d)
	}
	return out, nil
}

// compilePolicy compiles the policy documents of a server.
func compilePolicy(text api.Policy) (*policy.Policy, error) {
	layers := make([]policy.Layer, 0, len(text.Layers))
	for _, l := range text.Layers {
		d, err := policy.Parse([]byte(l.Document))
		if err != nil {
			return nil, fail("read the server's policy", err)
		}
		layers = append(layers, policy.Layer{Kind: l.Kind, Document: d})
	}
	p, _, err := policy.Compile(layers...)
	if err != nil {
		return nil, fail("read the server's policy", err)
	}
	if p.Digest() != text.Digest {
		// Another version would explain a policy that differs from the one in force.
		return nil, fail("read the server's policy", fault.New(fault.Unsupported, "policy_differs",
			"this program compiles the server's documents to another policy")).hint("use the same version as the server's: crannog version")
	}
	return p, nil
}

func (a policyVerbs) printPolicy(p *policy.Policy, layers bool) error {
	out := api.Policy{Digest: p.Digest(), Level: p.Level()}
	var err error
	if out.Document, err = p.Document().YAML(); err != nil {
		return err
	}
	for _, l := range p.Layers() {
		text, err := l.Document.YAML()
		if err != nil {
			return err
		}
		out.Layers = append(out.Layers, api.PolicyLayer{Kind: l.Kind, Document: text})
	}
	if a.json {
		return a.object(out)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# level %s, %s\n", out.Level, out.Digest)
	if !layers {
		b.WriteString(out.Document)
	}
	for i, l := range out.Layers {
		if layers {
			if i > 0 {
				b.WriteString("---\n")
			}
			fmt.Fprintf(&b, "# layer: %s\n%s", l.Kind, l.Document)
		}
	}
	_, err = fmt.Fprint(a.Stdout, printable(b.String()))
	return err
}

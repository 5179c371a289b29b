package cli

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/causeway"
	"github.com/crannog/crannog/internal/causeway/names"
	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// explanation is what policy explain prints.
type explanation struct {
	Request string `json:"request"`
	causeway.Decision
	Steps []policy.Step `json:"steps"`
}

func (a *app) policyExplainCommand() *cobra.Command {
	var f accessFlags
	cmd := &cobra.Command{
		Use: "explain [SANDBOX] METHOD URL", Short: "Say what a policy decides about a request, and why", Args: cobra.RangeArgs(2, 3),
		Long: "Say what the policy of a sandbox decides about a request and which rule it is, or\n" +
			"what it would be with flags of run. CONNECT and HOST:PORT is a connection that\n" +
			"nobody looks into. Nothing is sent anywhere, and names are not looked up, so that\n" +
			"what addresses decide is not part of it. The exit code is 0 if it is allowed, 1 if\n" +
			"it is asked about or denied, 2 if that cannot be said.",
		Example: "  crannog policy explain mybox GET https://api.github.com/user\n" +
			"  crannog policy explain --policy policy.yaml POST https://api.github.com/repos/a/b/pulls\n" +
			"  crannog policy explain --net dev CONNECT db.example.com:5432",
		Annotations: map[string]string{"code": "check"},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return a.completeOne(cmd, args, start)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ref := ""
			if len(args) == 3 {
				ref, args = args[0], args[1:]
			}
			r, err := requestOf(args[0], args[1])
			if err != nil {
				return err
			}
			if ref == "" {
				if err := a.linkedAnyway(&f); err != nil {
					return err
				}
			}
			p, err := a.policyFor(cmd.Context(), ref, &f)
			if err != nil {
				return err
			}
			d, steps := explain(p, r)
			if err := a.printExplanation(explanation{strings.Join(args, " "), d, steps}); err != nil {
				return err
			}
			if d.Effect != causeway.Allow {
				return exitCode(codeFound)
			}
			return nil
		},
	}
	f.add(cmd.Flags())
	f.offer(cmd)
	return cmd
}

// explain adds to the policy's answer what the floor says of an address. That
// is looked at when a connection is made, whatever a policy allows.
func explain(p *policy.Policy, r policy.Request) (causeway.Decision, []policy.Step) {
	d, steps := p.Explain(r)
	a, err := netip.ParseAddr(r.Host)
	if err != nil || d.Effect == causeway.Deny {
		return d, steps
	}
	if err := names.CheckAddress(a, p.Connect(r.Host, r.Port).Private, nil); err != nil {
		d = causeway.Decision{
			Effect: causeway.Deny, Rule: policy.RuleAddress, Layer: policy.LayerFloor, Policy: d.Policy, Reason: fault.PublicText(err), Fix: fault.HintOf(err),
		}
		if fault.CodeOf(err) == "address_private" {
			d.Rule = policy.RulePrivate
		}
		// The last step said what decides, which it no longer does.
		steps = append(steps[:len(steps)-1:len(steps)-1], policy.Step{Layer: d.Layer, Rule: d.Rule, Effect: d.Effect, Text: "no connection goes there"})
	}
	return d, steps
}

// linkedAnyway makes of flags that give no network what the level says of
// one: who names a level alone wants to know that.
func (a *app) linkedAnyway(f *accessFlags) error {
	access, err := f.asked()
	if err != nil {
		return err
	}
	if f.net == "" && !access.Linked() {
		f.net = string(sandbox.NetPolicy)
		a.note("with these flags run gives no network; this is what --net policy adds")
	}
	return nil
}

// requestOf reads what a person types: a method and a URL, or CONNECT and a
// host with a port.
func requestOf(method, target string) (policy.Request, error) {
	method = strings.ToUpper(method)
	if method != "CONNECT" {
		if !strings.Contains(target, "://") {
			target = "https://" + target
		}
		r, err := policy.ParseRequest(method + " " + target)
		if err != nil {
			return r, usagef("%s", err.Error()).hint("crannog policy explain GET https://example.com/path")
		}
		r.Host = canonical(r.Host)
		return r, nil
	}
	host, number, err := net.SplitHostPort(target)
	if err != nil {
		host, number = strings.Trim(target, "[]"), "443"
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil || port == 0 || host == "" {
		return policy.Request{}, usagef("%q is not a host and a port, such as example.com:443", target)
	}
	return policy.Request{Host: canonical(host), Port: int(port)}, nil
}

// canonical is the host as the causeway sees it. What is none is judged as it
// stands, and refused.
func canonical(host string) string {
	if name, err := names.Canonical(host); err == nil {
		return name
	}
	return host
}

func (a *app) printExplanation(e explanation) error {
	if a.json {
		return a.object(e)
	}
	fmt.Fprintf(a.Stdout, "%s: %s\n", e.Effect, oneLine(e.Request))
	fmt.Fprintf(a.Stdout, "  rule    %s (%s)\n", oneLine(e.Rule), oneLine(e.Layer))
	if e.Reason != "" {
		fmt.Fprintf(a.Stdout, "  reason  %s\n", oneLine(e.Reason))
	}
	if e.Fix != "" {
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

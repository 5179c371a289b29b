package cli

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/sandbox"
)

// accessFlags are the flags that set a sandbox's network access and policy.
type accessFlags struct {
	level  string
	policy string
	net    string
	allow  []string
	ask    bool
	// artifacts are globs of the files that may be exported.
	artifacts []string
}

// add defines the flags.
func (b *accessFlags) add(f *pflag.FlagSet) {
	f.StringVar(&b.level, "level", "", "`level` of the policy: strict, standard, light or minimal (default standard)")
	f.StringVar(&b.policy, "policy", "", "`file` with a policy document; crannog policy check reads it first")
	f.StringVar(&b.net, "net", "", "network: none, dev, open or policy (default none, or policy with --policy or --allow)")
	f.StringArrayVar(&b.artifacts, "artifact", nil, "export only files that match a `glob` such as 'dist/**'; may be repeated")
	f.StringArrayVar(&b.allow, "allow", nil, "allow `HOST[:PORT]`; may be repeated")
}

// nets are the networks that --net accepts, with a description of each.
var nets = [][2]string{
	{"none", "no network at all"},
	{"dev", "package registries, git forges, model APIs"},
	{"open", "every public host"},
	{"policy", "as the level and the policy define"},
}

// offer registers completions for the values of the flags.
func (b *accessFlags) offer(cmd *cobra.Command) {
	offerValues(cmd, "level", levelNames())
	var completions []cobra.Completion
	for _, n := range nets {
		completions = append(completions, cobra.CompletionWithDesc(n[0], n[1]))
	}
	offerValues(cmd, "net", completions)
	if cmd.Flags().Lookup("allow") != nil {
		// Hosts cannot be completed, and file names would be wrong.
		offerValues(cmd, "allow", nil)
	}
}

// levelNames returns the levels of a policy, with a description of each.
func levelNames() []cobra.Completion {
	notes := map[string]string{
		"strict": "only listed hosts; files are copied", "standard": "asks about other hosts",
		"light": "reads freely, asks about writes", "minimal": "open, and logged",
	}
	var completions []cobra.Completion
	for _, l := range policy.Levels() {
		completions = append(completions, cobra.CompletionWithDesc(l, notes[l]))
	}
	return completions
}

// offerValues registers the completions of one flag.
func offerValues(cmd *cobra.Command, flag string, values []cobra.Completion) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the command does not define the flag
	}
}

// maxPolicy bounds a policy file. The policy parser refuses a larger one too, but only after
// reading it.
const maxPolicy = 1 << 20

// access returns the sandbox's access as set by flags. Flags that exclude each other are refused
// before anything is started.
func (b *accessFlags) access() (api.Access, error) {
	out := api.Access{Level: b.level, Net: b.net, Allow: b.allow, Artifacts: b.artifacts}
	if b.level != "" && !slices.Contains(policy.Levels(), b.level) {
		return out, usagef("--level: unknown level %q", b.level).hint("levels are strict, standard, light and minimal")
	}
	if b.net != "" && !slices.ContainsFunc(nets, func(n [2]string) bool { return n[0] == b.net }) {
		return out, usagef("--net: unknown network %q", b.net).hint("networks are none, dev, open and policy; to allow one host, use --allow " + b.net)
	}
	if b.net == "none" {
		for flag, given := range map[string]bool{"--allow": len(b.allow) > 0, "--ask": b.ask} {
			if given {
				return out, usagef("--net none and %s exclude each other", flag)
			}
		}
	}
	if err := checkAllowed(b.allow); err != nil {
		return out, err
	}
	if _, err := policy.Hosts(b.allow...); err != nil {
		return out, usagef("--allow: %s", err.Error()).hint("use a host, or a host and a port: --allow example.com --allow example.com:8443")
	}
	if _, err := policy.Artifacts(b.artifacts...); len(b.artifacts) > 0 && err != nil {
		return out, usagef("--artifact: %s", err.Error()).hint("a glob below the workspace: --artifact 'dist/**'")
	}
	if b.ask && b.net == "" && b.policy == "" {
		// With --ask, the person decides about everything that the level leaves open, in particular
		// hosts.
		out.Net = string(sandbox.NetPolicy)
		if b.level == "strict" && len(b.allow) == 0 {
			return out, usagef("--ask has no effect: the level strict denies every host that is not listed").
				hint("list hosts with --allow or --policy, or use --level standard")
		}
	}
	if b.policy == "" {
		return out, nil
	}
	text, err := readFile(b.policy, maxPolicy)
	if err != nil {
		return out, fail("read the policy", err)
	}
	if _, err := policy.Parse(text); err != nil {
		return out, fail("use "+b.policy, err)
	}
	out.Policy = string(text)
	return out, nil
}

package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
)

// engineVerbs is the command that lists engines.
type engineVerbs struct{ *app }

func (a engineVerbs) enginesCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "engines", Short: "List the engines that isolate sandboxes", Args: cobra.NoArgs,
		Long: "List the engines that sandboxes can run on, with the boundary that each one puts\n" +
			"between a program and the host's kernel. Boundaries from the weakest: none,\n" +
			"shared-kernel, wasm-runtime, userspace-kernel, own-kernel. A policy's\n" +
			"isolation.at_least names the weakest boundary that it accepts. For an engine that\n" +
			"cannot run on this machine the list shows the reason and the fix. IMAGES are what an\n" +
			"engine starts sandboxes from: host-view is a template of this host's programs, such\n" +
			"as base, oci is an OCI image (crannog run --image), and module is a template for\n" +
			"WebAssembly. An asterisk marks the default engine.",
		Example: "  crannog engines\n  crannog engines --json\n  crannog run --engine gvisor -- true",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				engines, err := c.Engines(cmd.Context())
				if err != nil {
					return fail("list the engines", err)
				}
				return list(&a.terminal, &f, engines, func(e api.Engine) string { return e.Name },
					[]string{"NAME", "VERSION", "BOUNDARY", "AVAILABLE", "IMAGES", "ENFORCES", "CAPABILITIES"}, engineRow)
			})
		},
	}
	f.add(cmd)
	return cmd
}

// engineRow returns the cells of an engine in the table.
func engineRow(e api.Engine) []string {
	name, available := e.Name, "yes"
	if e.Default {
		name += " *"
	}
	if !e.Available {
		available = "no: " + e.Reason
		if e.Fix != "" {
			available += "; fix: " + e.Fix
		}
	}
	return []string{name, e.Version, e.Boundary, available, strings.Join(e.Images, ","), strings.Join(e.Enforces, ","), strings.Join(e.Capabilities, ",")}
}

// offerEngines completes a flag with the names of engines.
func (a *app) offerEngines(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var found []cobra.Completion
		a.ask(cmd.Context(), func(ctx context.Context, c *connection) error {
			engines, err := c.Engines(ctx)
			for _, e := range engines {
				found = append(found, cobra.CompletionWithDesc(e.Name, e.Boundary))
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // there is no such flag
	}
}

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
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
			"isolation.at_least names the weakest boundary that it accepts; LEVELS are the levels\n" +
			"of policies that accept an engine. IMAGES are what an engine starts sandboxes from:\n" +
			"host-view is a template of this host's programs, such as base, oci is an OCI image\n" +
			"(crannog run --image), and module is a template for WebAssembly. An asterisk marks\n" +
			"the default engine. Below the table are the version, limits and capabilities of each\n" +
			"engine. For an engine that cannot run on this machine there are the reason and the\n" +
			"fix.",
		Example: "  crannog engines\n  crannog engines --json\n  crannog run --engine gvisor -- true",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				engines, err := c.Engines(cmd.Context())
				if err != nil {
					return fail("list the engines", err)
				}
				err = list(&a.terminal, &f, engines, func(e api.Engine) string { return e.Name },
					[]string{"NAME", "BOUNDARY", "AVAILABLE", "LEVELS", "IMAGES"}, engineRow)
				if err == nil && f.format == "" && !f.jsonl && !a.json && !a.quiet {
					err = engineNotes(a.Stdout, engines)
				}
				return err
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
		available = "no"
	}
	return []string{name, e.Boundary, available, levelsOf(e.Boundary), strings.Join(e.Images, ",")}
}

// levelsOf lists the levels of policies that accept a boundary.
func levelsOf(boundary string) string {
	var accept []string
	for _, level := range policy.Levels() {
		document, err := policy.Level(level)
		if err == nil && engine.Boundary(boundary).AtLeast(engine.Boundary(document.Isolation.AtLeast)) {
			accept = append(accept, level)
		}
	}
	if len(accept) == len(policy.Levels()) {
		return "all"
	}
	return strings.Join(accept, ",")
}

// engineNotes prints the details of each engine, below the table.
func engineNotes(w io.Writer, engines []api.Engine) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, e := range engines {
		lines := []string{
			"version " + e.Version, "enforces " + strings.Join(e.Enforces, ", "), "can " + strings.Join(e.Capabilities, ", "),
		}
		if !e.Available {
			lines = []string{"not available: " + e.Reason}
			if e.Fix != "" {
				lines = append(lines, "fix: "+e.Fix)
			}
		}
		fmt.Fprintln(tw)
		for i, line := range lines {
			name := ""
			if i == 0 {
				name = e.Name
			}
			fmt.Fprintf(tw, "%s\t%s\n", inert(name), inert(line))
		}
	}
	return tw.Flush()
}

// offerEngines completes a flag with the names of engines.
func (a *app) offerEngines(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var found []cobra.Completion
		a.askServer(cmd.Context(), func(ctx context.Context, c *connection) error {
			engines, err := c.Engines(ctx)
			for _, e := range engines {
				found = append(found, cobra.CompletionWithDesc(e.Name, e.Boundary))
			}
			return err
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the command does not define the flag
	}
}

package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/config"
)

// completionTime bounds how long a shell waits for names.
const completionTime = 2 * time.Second

// completeOne completes running and paused sandboxes as the first argument.
func (a *app) completeOne(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.names(cmd.Context(), nil, alive), cobra.ShellCompDirectiveNoFileComp
}

// completeEnded completes all sandboxes as the first argument, also ended ones.
func (a *app) completeEnded(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.names(cmd.Context(), nil, []string{"all"}), cobra.ShellCompDirectiveNoFileComp
}

// completeMany completes sandboxes, except those already on the command line.
func (a *app) completeMany(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(cmd.Context(), args, alive), cobra.ShellCompDirectiveNoFileComp
}

// completeStates completes sandboxes in the given states, except those already on the command line.
func (a *app) completeStates(states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.names(cmd.Context(), args, states), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSnapshots completes snapshots, except those already on the command line.
func (a *app) completeSnapshots(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.snapshotNames(cmd.Context(), args), cobra.ShellCompDirectiveNoFileComp
}

// completeRollback completes a sandbox and then a snapshot.
func (a *app) completeRollback(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.names(cmd.Context(), nil, alive), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return a.snapshotNames(cmd.Context(), nil), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// offerStart completes flags about a sandbox's start, engine and end.
func (a *app) offerStart(cmd *cobra.Command) {
	a.offerEngines(cmd, "engine")
	err := cmd.RegisterFlagCompletionFunc("from", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.snapshotNames(cmd.Context(), nil), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the command does not define the flag
	}
	if err := cmd.RegisterFlagCompletionFunc("image", imageVerbs{a}.completeImages); err != nil {
		panic(err) // the command does not define the flag
	}
	offerValues(cmd, "pull", []cobra.Completion{pullMissing, pullAlways, pullNever})
	offerValues(cmd, "on-end", []cobra.Completion{
		cobra.CompletionWithDesc("kill", "end the sandbox"), cobra.CompletionWithDesc("pause", "save memory and files; resume continues it"),
		cobra.CompletionWithDesc("pause-files", "save files; resume boots it again"),
	})
}

// names returns the names of sandboxes in the given states, without those in exclude.
func (a *app) names(ctx context.Context, exclude, states []string) []cobra.Completion {
	var found []cobra.Completion
	reachable := a.askServer(ctx, func(ctx context.Context, c *connection) error {
		rows, err := c.List(ctx, crannog.ListOptions{States: states})
		for _, row := range rows {
			if name := label(row); !slices.Contains(exclude, name) {
				found = append(found, cobra.CompletionWithDesc(name, row.Template))
			}
		}
		return err
	})
	if reachable && (slices.Contains(states, "running") || slices.Contains(states, "all")) {
		found = append(found, lastAlias)
	}
	return found
}

// snapshotNames returns the names of snapshots, without those in exclude.
func (a *app) snapshotNames(ctx context.Context, exclude []string) []cobra.Completion {
	var found []cobra.Completion
	a.askServer(ctx, func(ctx context.Context, c *connection) error {
		rows, err := c.Snapshots(ctx, crannog.SnapshotOptions{})
		for _, row := range rows {
			if name := first(row.Name, row.ID); !slices.Contains(exclude, name) {
				found = append(found, cobra.CompletionWithDesc(name, "of "+row.Sandbox))
			}
		}
		return err
	})
	return found
}

// askServer requests names from a running server. It starts no engine, because the tab key must not
// wait for one. It reports whether a server is reachable. Errors are ignored, because completion
// cannot show them.
func (a *app) askServer(ctx context.Context, work func(context.Context, *connection) error) (reachable bool) {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := config.Load(a.home, a.configFile)
	if err != nil {
		return false
	}
	a.config = c
	if c.Client.URL == "" && !answers(ctx, c.Socket()) {
		return false
	}
	_ = a.with(ctx, func(c *connection) error { return work(ctx, c) })
	return true
}

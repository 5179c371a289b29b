package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/config"
)

// completionTime is how long a shell waits for names.
const completionTime = 2 * time.Second

// completeOne offers the sandboxes that run for the first argument.
func (a *app) completeOne(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.names(cmd.Context(), nil), cobra.ShellCompDirectiveNoFileComp
}

// completeMany offers those that are not named yet.
func (a *app) completeMany(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return a.names(cmd.Context(), args), cobra.ShellCompDirectiveNoFileComp
}

// names asks a server, but starts no engine: a tab key must not wait for
// one. Nothing is offered where nothing answers.
func (a *app) names(ctx context.Context, taken []string) []cobra.Completion {
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	c, err := config.Load(a.Env.Config, a.configFile)
	if err != nil {
		return nil
	}
	a.config = c
	if c.URL == "" && !answers(ctx, c.Socket()) {
		return nil
	}
	var found []cobra.Completion
	// An error offers nothing, which is all that completion can say.
	_ = a.with(ctx, func(c *connection) error {
		rows, err := c.List(ctx, crannog.ListOptions{})
		for _, row := range rows {
			if name := label(row); !slices.Contains(taken, name) {
				found = append(found, cobra.CompletionWithDesc(name, row.Template))
			}
		}
		return err
	})
	return append(found, lastAlias)
}

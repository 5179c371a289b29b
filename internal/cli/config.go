package cli

import (
	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "config", Short: "Show every setting and where its value comes from", Args: cobra.NoArgs,
		Long: "Show every setting and where its value comes from. Later sources win: default,\n" +
			"file (~/.config/crannog/config.toml or /etc/crannog/config.toml), environment\n(CRANNOG_ and the name in capitals), flag.",
		RunE: func(*cobra.Command, []string) error {
			return list(&a.terminal, &f, a.config.Values(), func(v config.Value) string { return v.Name },
				[]string{"NAME", "VALUE", "FROM", "MEANING"}, func(v config.Value) []string {
					return []string{v.Name, v.Value, v.Origin, v.Help}
				})
		},
	}
	f.add(cmd)
	return cmd
}

package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
)

// keyVerbs are the commands about API keys.
type keyVerbs struct{ *app }

func (a keyVerbs) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "key", Short: "Create, list and revoke API keys", Args: cobra.ArbitraryArgs,
		Long: "Create, list and revoke the API keys that authenticate programs to the server. A key\n" +
			"is shown once, when it is created; the server stores only its hash.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command key %s", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.AddCommand(a.keyNewCommand(), a.keyListCommand(), a.keyRevokeCommand())
	return cmd
}

func (a keyVerbs) keyNewCommand() *cobra.Command {
	var mcp bool
	cmd := &cobra.Command{
		Use: "new [NAME]", Short: "Create a key and print it", Args: cobra.MaximumNArgs(1),
		Long: "Create a key and print it. It allows the whole API. With --mcp it allows only the\n" +
			"MCP tools of agents at /mcp: an agent that finds the key gets no other permissions.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			return a.with(cmd.Context(), func(c *connection) error {
				create := c.NewKey
				if mcp {
					create = c.NewAgentKey
				}
				key, err := create(cmd.Context(), name)
				if err != nil {
					return fail("create a key", err)
				}
				if a.json {
					return a.object(key)
				}
				_, err = fmt.Fprintln(a.Stdout, key.Secret)
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&mcp, "mcp", false, "create a key that allows only the MCP tools of agents")
	return cmd
}

func (a keyVerbs) keyListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				keys, err := c.Keys(cmd.Context())
				if err != nil {
					return fail("list keys", err)
				}
				now := time.Now()
				return list(&a.terminal, &f, keys, func(k api.Key) string { return k.ID }, []string{"ID", "NAME", "OPENS", "MADE", "USED"}, func(k api.Key) []string {
					used := "never"
					if k.LastUsedAt != nil {
						used = ago(*k.LastUsedAt, now)
					}
					return []string{k.ID, k.Name, k.Opens, ago(k.CreatedAt, now), used}
				})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a keyVerbs) keyRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY...", Aliases: []string{"rm"}, Short: "Revoke keys, by ID or name", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				for _, ref := range args {
					if err := c.RevokeKey(cmd.Context(), ref); err != nil {
						return fail("revoke key "+ref, err)
					}
				}
				return a.done(args)
			})
		},
	}
}

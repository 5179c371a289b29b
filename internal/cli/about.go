package cli

import (
	"fmt"
	"runtime"
	"strings"

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
			return list(a, &f, a.config.Values(), func(v config.Value) string { return v.Name },
				[]string{"NAME", "VALUE", "FROM", "MEANING"}, func(v config.Value) []string {
					return []string{v.Name, v.Value, v.Origin, v.Help}
				})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Show the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.object(map[string]string{
					"version": a.Version, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(a.Stdout, "crannog %s %s %s/%s\n", a.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

const exitCodes = `run, exec, shell
  the command's own code
  124   the time limit (--timeout, --ttl) ended the command
  125   we failed before the command ran
  126   the command cannot be executed
  127   there is no such command
  128+N signal N ended the command; 137 also after the memory limit

all other commands
  0     done
  1     failed
  2     the command line or a setting is wrong
  3     there is no such sandbox or key
  4     the server refuses
  5     the name is taken, or the sandbox is in a state that forbids it
  6     the server cannot be reached

doctor
  0     nothing found
  1     something found; each line says what to do
  2     sandboxes cannot run here
`

// addHelp adds the topics that belong to no command, and a tree of all.
func (a *app) addHelp(root *cobra.Command) {
	root.AddCommand(&cobra.Command{Use: "exit-codes", Short: "What exit codes mean", Long: strings.TrimSpace(exitCodes)})
	var tree bool
	help := &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			if tree {
				a.printTree(root, "")
				return nil
			}
			found, _, err := root.Find(args)
			if err != nil || found == nil || found == root && len(args) > 0 {
				return usagef("there is no command or topic %q", strings.Join(args, " "))
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
	}
	help.Flags().BoolVar(&tree, "tree", false, "show every command")
	root.SetHelpCommand(help)
}

func (a *app) printTree(cmd *cobra.Command, lead string) {
	fmt.Fprintf(a.Stdout, "%s%s  %s\n", lead, cmd.Use, cmd.Short)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			a.printTree(sub, lead+"  ")
		}
	}
}

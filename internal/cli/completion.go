package cli

import (
	"io"

	"github.com/spf13/cobra"
)

const completionHelp = `Print the script that makes a shell complete commands, flags, and the names of
sandboxes, snapshots, secrets and engines. Names come from a running server.

  bash         crannog completion bash > ~/.local/share/bash-completion/completions/crannog
               (needs the package bash-completion), or in ~/.bashrc:
               source <(crannog completion bash)
  zsh          crannog completion zsh > "${fpath[1]}/_crannog"
               (needs "autoload -U compinit; compinit" in ~/.zshrc)
  fish         crannog completion fish > ~/.config/fish/completions/crannog.fish
  powershell   crannog completion powershell | Out-String | Invoke-Expression

It takes effect in the next shell.
`

func completionCommand(a *app) *cobra.Command {
	var bare bool
	writeScript := map[string]func(*cobra.Command, io.Writer) error{
		"bash": func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, !bare) },
		"zsh": func(root *cobra.Command, w io.Writer) error {
			if bare {
				return root.GenZshCompletionNoDesc(w)
			}
			return root.GenZshCompletion(w)
		},
		"fish": func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, !bare) },
		"powershell": func(root *cobra.Command, w io.Writer) error {
			if bare {
				return root.GenPowerShellCompletion(w)
			}
			return root.GenPowerShellCompletionWithDesc(w)
		},
	}
	cmd := &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "Print the completion script of a shell", Long: completionHelp,
		Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		// A shell must be able to start even if the settings have a mistake.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { a.setKind(cmd); return nil },
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeScript[args[0]](cmd.Root(), a.Stdout)
		},
	}
	cmd.Flags().BoolVar(&bare, "no-descriptions", false, "print names without descriptions")
	return cmd
}

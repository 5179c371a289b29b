package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/cli/manual"
)

func manCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write the man pages", Args: cobra.ExactArgs(1),
		Long: "Write a man page for each command and help topic below a directory of\n" +
			"manuals. The pages have the same texts as crannog help. DIR is created if it\n" +
			"does not exist, and earlier pages of the same names are replaced.",
		Example: "  crannog man ~/.local/share/man        # then: man crannog-run\n  sudo crannog man /usr/local/share/man",
		// The pages do not depend on the settings, so a mistake in the settings must not prevent an
		// installation.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { a.setKind(cmd); return nil },
		RunE: func(cmd *cobra.Command, args []string) error {
			written, err := manual.Write(args[0], manual.Pages(cmd.Root(), a.version))
			if err != nil {
				return fail("write the man pages", err).hint("choose a writable directory, such as ~/.local/share/man")
			}
			if a.json {
				return a.object(map[string][]string{"files": written})
			}
			if !a.quiet {
				fmt.Fprintf(a.Stderr, "wrote %d pages below %s\n", len(written), inert(args[0]))
			}
			return nil
		},
	}
}

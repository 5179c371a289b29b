package cli

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
)

func (a imageVerbs) attachedCommand() *cobra.Command {
	var f listFlags
	var from, output string
	cmd := &cobra.Command{
		Use: "attached IMAGE [TYPE|DIGEST]", Short: "List the files that are attached to an image in a registry, or fetch one", Args: cobra.RangeArgs(1, 2),
		Long: "List the files that are attached to an image in its registry: what crannog image attach\n" +
			"and other tools sent there. With a media type or a digest of the list, fetch that file.\n" +
			"It is compared with its digest, but everyone who can write to the registry can attach\n" +
			"files: only a signature, as crannog image verify checks it, shows who made one.",
		Example: "  crannog image attached ghcr.io/org/app:1\n" +
			"  crannog image attached app:1 application/spdx+json --from ghcr.io/org/app:1 -o app.spdx.json",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				if len(args) == 2 {
					return a.fetchAttached(ctx, c, args, from, output)
				}
				if output != "" {
					return usagef("--output needs the type or the digest of a file")
				}
				files, err := c.AttachedToImage(ctx, args[0], from)
				if err != nil {
					return fail("list the files of "+inert(args[0]), err)
				}
				return list(&a.terminal, &f, files, func(l api.ListedFile) string { return l.Digest },
					[]string{"TYPE", "DIGEST"}, func(l api.ListedFile) []string { return []string{l.Type, l.Digest} })
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&from, "from", "", "`reference` under which the image was pushed (default: its own name)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write (default: standard output)")
	return cmd
}

// fetchAttached writes the attached file that args name after the image.
func (a imageVerbs) fetchAttached(ctx context.Context, c *connection, args []string, from, output string) error {
	toStdout := output == "" || output == "-"
	// The one who attached the file could have put control sequences into it.
	if f, ok := a.Stdout.(*os.File); toStdout && ok && isTerminal(f) {
		return usagef("cannot write a file of a registry to a terminal").hint("use -o FILE, or a pipe")
	}
	op := "fetch " + inert(args[1]) + " of " + inert(args[0])
	data, err := c.ReadAttachedToImage(ctx, args[0], from, args[1])
	if err != nil {
		return fail(op, err)
	}
	write := func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
	if toStdout {
		return write(a.Stdout)
	}
	if err := exportTo(output, write); err != nil {
		return fail(op, err)
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
)

type exportFlags struct {
	selection
	tar, patch string
	provenance string
	artifacts  []string
	protected  bool
}

func (a changeVerbs) exportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use: "export [SANDBOX] [PATH...] --tar FILE | --patch FILE", Short: "Write a sandbox's changes to a file",
		Long: "Write a sandbox's changes to a file, under the same rules as crannog apply. The\n" +
			"workspace on the host is not changed. --tar writes created and changed files.\n" +
			"--patch writes a patch for git apply, which includes removals. - is standard output.",
		Example:           "  crannog export --patch changes.patch\n  crannog export mybox --tar - --artifact 'dist/**' | tar t",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (f.tar == "") == (f.patch == "") {
				return usagef("export needs --tar FILE or --patch FILE").hint("- is standard output")
			}
			if f.provenance == "-" || f.provenance != "" && f.provenance == f.tar+f.patch {
				return usagef("the provenance needs a file of its own")
			}
			return a.with(cmd.Context(), func(c *connection) error { return a.export(cmd, c, &f, args) })
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.tar, "tar", "", "write a tar to a `file`")
	cmd.Flags().StringVar(&f.patch, "patch", "", "write a patch to a `file`")
	cmd.Flags().StringArrayVar(&f.artifacts, "artifact", nil, "only files that match a `glob`; may be repeated")
	cmd.Flags().StringVar(&f.provenance, "provenance", "", "write a signed statement to a `file`, for crannog audit verify-artifact")
	cmd.Flags().BoolVar(&f.protected, "protected", false, "include protected files and files that tools run by themselves")
	return cmd
}

func (a changeVerbs) export(cmd *cobra.Command, c *connection, f *exportFlags, args []string) (err error) {
	ctx := cmd.Context()
	t, err := a.changesOf(ctx, c, cmd, args)
	if err != nil {
		return err
	}
	t.paths = append(t.paths, f.artifacts...)
	masked := 0
	o := crannog.ExportOptions{ChangesOptions: f.options(t, false), Format: "tar", Protected: f.protected, Masked: &masked}
	name := f.tar
	if f.patch != "" {
		o.Format, name = "patch", f.patch
	}
	stop := a.progress("comparing files")
	defer stop()
	if name == "-" && isTerminal(a.Stdout) && o.Format == "tar" {
		return usagef("cannot write a tar to a terminal").hint("use --tar FILE, or a pipe")
	}
	write := func(w io.Writer) error { return c.ExportOf(ctx, t.id, o, w) }
	signed := func(w, envelope io.Writer) error { o.Provenance = envelope; return write(w) }
	switch {
	case name == "-" && f.provenance == "":
		err = write(a.Stdout)
	case name == "-":
		err = toNewFile(f.provenance, func(envelope io.Writer) error { return signed(a.Stdout, envelope) })
	case f.provenance == "":
		err = toNewFile(name, write)
	default:
		err = writeWithProvenance(name, f.provenance, signed)
	}
	if err != nil {
		return fail("export the changes of "+t.name, err)
	}
	stop()
	a.reportMasked(masked)
	return nil
}

// checkVacant returns an error if a file with that name exists.
func checkVacant(name string) error {
	if _, err := os.Lstat(name); err == nil {
		return fault.Newf(fault.Exists, "file_exists", "%s exists already", name)
	}
	return nil
}

// toNewFile writes a new file under its final name once it is complete. After an error no file is
// left.
func toNewFile(name string, write func(io.Writer) error) (err error) {
	if err := checkVacant(name); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if removeErr := os.Remove(tmp.Name()); removeErr != nil && !errors.Is(removeErr, os.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}()
	if err := errors.Join(write(tmp), tmp.Close()); err != nil {
		return err
	}
	// A link fails if another process has created the file since. A rename would replace that file.
	if err := os.Link(tmp.Name(), name); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.Chmod(name, 0o644)
}

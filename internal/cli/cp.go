package cli

import (
	"context"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
)

func (a *app) cpCommand() *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "Copy files into, out of and between sandboxes", Args: cobra.ExactArgs(2),
		Long: "Copy a file or a directory. A path inside is SANDBOX:PATH; a relative one starts\n" +
			"at /workspace. An existing directory as DESTINATION gets the source below its\n" +
			"own name. Permissions are kept, owners are not; symbolic links and special files\n" +
			"inside a directory are left out and counted. --json prints where the copy is and\n" +
			"what it holds.",
		Example:           "  crannog cp ./data web:/tmp\n  crannog cp web:/workspace/out .\n  crannog cp web:a.txt other:b.txt",
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.cp(cmd.Context(), args[0], args[1], user)
		},
	}
	cmd.Flags().StringVarP(&user, "user", "u", "root", "`user` inside who reads and writes")
	return cmd
}

// copied is what --json prints: where the copy is, and what it holds.
type copied struct {
	ID          string `json:"id,omitempty"` // of the sandbox that has it; none is this host
	Path        string `json:"path"`
	Files       int    `json:"files"`
	Directories int    `json:"directories"`
	Bytes       int64  `json:"bytes"`
	LeftOut     int    `json:"left_out"` // links and special files
}

// place is one end of a copy.
type place struct {
	ref  string // sandbox, or "" for the host
	path string
}

// parsePlace reads SANDBOX:PATH. A colon after a slash belongs to a host
// path, as in docker.
func parsePlace(arg string) place {
	ref, p, ok := strings.Cut(arg, ":")
	if !ok || ref == "" || strings.Contains(ref, "/") || strings.HasPrefix(ref, ".") {
		return place{path: arg}
	}
	return place{ref: ref, path: p}
}

// inside makes a name for package fs of a path inside.
func inside(p string) string {
	if !path.IsAbs(p) {
		p = path.Join("/workspace", p)
	}
	if p = strings.TrimPrefix(path.Clean(p), "/"); p == "" {
		return "."
	}
	return p
}

func (a *app) cp(ctx context.Context, source, destination, user string) error {
	from, to := parsePlace(source), parsePlace(destination)
	if from.path == "" || to.path == "" && to.ref == "" {
		return usagef("a path is missing in %q or %q", source, destination)
	}
	if from.ref == "" && to.ref == "" {
		return usagef("neither path is inside a sandbox").hint("SANDBOX:PATH names one; cp of your shell copies on the host")
	}
	return a.with(ctx, func(c *connection) error {
		src, err := a.sourceOf(ctx, c, from, user)
		if err != nil {
			return err
		}
		defer src.close()
		dst, err := a.targetOf(ctx, c, to, user, src)
		if err != nil {
			return err
		}
		defer dst.close()
		stop := a.progress("copying " + source)
		defer stop()
		copier := &copier{app: a, from: src, to: dst}
		if err := copier.all(ctx); err != nil {
			return fail("copy "+source, err)
		}
		if a.json {
			copier.done.ID, copier.done.Path = dst.at()
			return a.object(copier.done)
		}
		return nil
	})
}

// boxFS is the files of a sandbox that is named, and the sandbox's ID.
func (a *app) boxFS(ctx context.Context, c *connection, ref, user string) (files *crannog.FS, id string, err error) {
	sb, err := c.find(ctx, ref)
	if err != nil {
		return nil, "", err
	}
	if err := a.awake(ctx, sb); err != nil {
		return nil, "", err
	}
	return sb.FS().As(user).WithContext(ctx), sb.ID(), nil
}

func (a *app) completePath(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if strings.Contains(word, "/") || filepath.IsAbs(word) {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var found []cobra.Completion
	for _, name := range a.names(cmd.Context(), nil, alive) {
		name, _, _ = strings.Cut(name, "\t")
		found = append(found, name+":")
	}
	return found, cobra.ShellCompDirectiveNoSpace
}

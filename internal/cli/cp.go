package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
)

// copyVerbs is the command that copies files into and out of sandboxes.
type copyVerbs struct{ *app }

func (a copyVerbs) cpCommand() *cobra.Command {
	var o copyFlags
	cmd := &cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "Copy files into, out of and between sandboxes", Args: cobra.ExactArgs(2),
		Long: "Copy a file or a directory. A path inside is SANDBOX:PATH; a relative one starts\n" +
			"at /workspace. If DESTINATION is an existing directory, the copy is placed in it\n" +
			"under the name of SOURCE; SOURCE/. copies only the contents.\n\n" +
			"Names, permissions, times, symbolic links and holes are kept. Inside, files belong\n" +
			"to the sandbox's user (--user), on the host to you. Sockets, devices and named pipes\n" +
			"are skipped and counted. A copy to the host also skips links that point out of\n" +
			"the copy. A copy that is interrupted, or that would fill the disk, leaves nothing.",
		Example:           "  crannog cp ./data web:/tmp\n  crannog cp web:/workspace/out .\n  crannog cp web:a.txt other:b.txt",
		ValidArgsFunction: a.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := notify(cmd.Context(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return a.cp(ctx, args[0], args[1], o)
		},
	}
	cmd.Flags().StringVarP(&o.user, "user", "u", "", "`user` inside that reads and writes, and owns the files\n(default: the sandbox's own, assisted by root if the policy allows root)")
	cmd.Flags().BoolVarP(&o.follow, "follow-link", "L", false, "if SOURCE is a symbolic link, copy its target")
	cmd.Flags().BoolVarP(&o.owners, "archive", "a", false, "keep numeric owner and group (for root)")
	return cmd
}

// copyFlags are the flags of crannog cp.
type copyFlags struct {
	user           string
	follow, owners bool
}

// copyResult is the output of --json: the path of the copy, and its contents.
type copyResult struct {
	ID          string `json:"id,omitempty"` // ID of the sandbox with the copy; "" means this host
	Path        string `json:"path"`
	PathBytes   []byte `json:"path_base64,omitempty"` // the path, if it is not UTF-8
	Files       int    `json:"files"`
	Directories int    `json:"directories"`
	Links       int    `json:"links"`
	Bytes       int64  `json:"bytes"`
	LeftOut     int    `json:"left_out"` // special files, and links that lead out of the copy
}

// copyEnd is the source or the destination of a copy.
type copyEnd struct {
	ref  string // sandbox, or "" for the host
	path string
}

// parseCopyEnd parses SANDBOX:PATH. As in docker, a colon after a slash is part of a host path.
func parseCopyEnd(arg string) copyEnd {
	ref, p, ok := strings.Cut(arg, ":")
	if !ok || ref == "" || strings.Contains(ref, "/") || strings.HasPrefix(ref, ".") {
		return copyEnd{path: arg}
	}
	return copyEnd{ref: ref, path: p}
}

// inside returns a path inside. It preserves a slash or "/." at the end, because they change the
// meaning.
func inside(p string) string {
	switch {
	case p == "":
		return "/workspace"
	case strings.HasPrefix(p, "/"):
		return p
	}
	return "/workspace/" + p
}

func (a copyVerbs) cp(ctx context.Context, source, destination string, o copyFlags) error {
	from, to := parseCopyEnd(source), parseCopyEnd(destination)
	if from.path == "" || to.path == "" && to.ref == "" {
		return usagef("a path is missing in %q or %q", source, destination)
	}
	if from.ref == "" && to.ref == "" {
		return usagef("neither SOURCE nor DESTINATION is in a sandbox").hint("write SANDBOX:PATH for a path in a sandbox; use cp to copy on the host")
	}
	if o.owners && to.ref == "" && os.Geteuid() != 0 {
		return usagef("only root can keep owners on the host").hint("omit --archive: the files will belong to you")
	}
	return a.with(ctx, func(c *connection) error {
		done, err := a.copyFiles(ctx, c, from, to, source, o)
		if err != nil {
			if ctx.Err() != nil {
				err = fault.New(fault.Canceled, "interrupted", "it was interrupted, and the partial copy was removed")
			}
			return fail("copy "+source, err)
		}
		if a.json {
			return a.object(done)
		}
		return nil
	})
}

func (a copyVerbs) copyFiles(ctx context.Context, c *connection, from, to copyEnd, source string, o copyFlags) (*copyResult, error) {
	var files [2]*crannog.FS
	var id string
	for i, p := range []copyEnd{from, to} {
		if p.ref == "" {
			continue
		}
		f, ref, err := a.sandboxFS(ctx, c, p.ref, o.user)
		if err != nil {
			return nil, err
		}
		if files[i] = f; i == 1 {
			id = ref
		}
	}
	stop := a.progress("copying " + source)
	defer stop()
	options := crannog.CopyOptions{Follow: o.follow, KeepOwners: o.owners}
	var done crannog.Copied
	var err error
	switch {
	case from.ref == "":
		done, err = files[1].CopyIn(from.path, inside(to.path), options)
	case to.ref == "":
		var full string
		if full, err = hostPath(to.path); err == nil {
			done, err = files[0].CopyOut(inside(from.path), full, options)
		}
	default:
		done, err = files[0].CopyTo(inside(from.path), files[1], inside(to.path), options)
	}
	if err != nil {
		return nil, err
	}
	if n := done.LeftOut - done.Outward; n > 0 {
		a.note("%d sockets, devices or named pipes were omitted", n)
	}
	if n := done.Outward; n > 0 {
		a.note("%d symbolic links were omitted because they point out of the copy", n)
	}
	result := &copyResult{
		ID: id, Path: done.Path, Files: done.Files, Directories: done.Directories, Links: done.Links,
		Bytes: done.Bytes, LeftOut: done.LeftOut,
	}
	if !utf8.ValidString(done.Path) {
		result.PathBytes = []byte(done.Path)
	}
	return result, nil
}

// hostPath makes a path absolute and preserves a slash at its end.
func hostPath(p string) (string, error) {
	full, err := filepath.Abs(p)
	if err == nil && strings.HasSuffix(p, "/") && full != "/" {
		full += "/"
	}
	return full, err
}

// sandboxFS returns the files of a named sandbox, and the sandbox's ID.
func (a copyVerbs) sandboxFS(ctx context.Context, c *connection, ref, user string) (files *crannog.FS, id string, err error) {
	sb, err := c.find(ctx, ref)
	if err != nil {
		return nil, "", err
	}
	if err := a.ensureRunning(ctx, sb); err != nil {
		return nil, "", err
	}
	return sb.FS().As(user).WithContext(ctx), sb.ID(), nil
}

// completePath completes names of sandboxes and files of the host.
func (a copyVerbs) completePath(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
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

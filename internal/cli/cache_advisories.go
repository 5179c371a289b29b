package cli

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

func (a cacheVerbs) advisoriesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "advisories", Short: "Known vulnerabilities and malware, for packages.advisories of a policy",
		Long: "Import, list and remove databases of known vulnerabilities and malware. Sandboxes whose\n" +
			"policy has packages.advisories cannot install the versions that they name. Nothing is\n" +
			"downloaded: import again what you have downloaded to stay up to date.",
		Example: "  crannog cache advisories import npm/all.zip\n  crannog cache advisories ls",
	}
	cmd.AddCommand(a.importCommand(), a.advisoryListCommand(), a.advisoryRemoveCommand())
	return cmd
}

func (a cacheVerbs) importCommand() *cobra.Command {
	return &cobra.Command{
		Use: "import PATH...", Short: "Add advisories in OSV's format", Args: cobra.MinimumNArgs(1),
		Long: "Add advisories in OSV's format: a zip as OSV publishes it for each ecosystem, a\n" +
			"directory with JSON files, or one JSON file. An advisory replaces the one with the same\n" +
			"ID, unless that is newer; others stay. A withdrawn advisory is removed. If anything in\n" +
			"a PATH is invalid, nothing of it is imported.",
		Example: "  curl -fLO https://osv-vulnerabilities.storage.googleapis.com/npm/all.zip\n  crannog cache advisories import all.zip",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.every(ctx, args, func(path string) error {
					done, err := importAdvisories(ctx, c, path)
					if err != nil {
						return fail("import "+inert(path), err)
					}
					if a.json {
						return a.object(done)
					}
					fmt.Fprintf(a.Stdout, "read %d advisories from %s (%d withdrawn, %d of other ecosystems)\n", done.Advisories, inert(path), done.Withdrawn, done.Skipped)
					for _, d := range done.Databases {
						fmt.Fprintf(a.Stdout, "%s: %d advisories about %d packages\n", inert(d.Ecosystem), d.Advisories, d.Packages)
					}
					return nil
				})
			})
		},
	}
}

// importAdvisories sends a file, or a directory as a zip.
func importAdvisories(ctx context.Context, c *connection, path string) (api.ImportedAdvisories, error) {
	f, err := os.Open(path)
	if err != nil {
		return api.ImportedAdvisories{}, fault.New(fault.Invalid, "advisories_path", err.Error())
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return api.ImportedAdvisories{}, err
	case info.Mode().IsRegular():
		return c.ImportAdvisories(ctx, f)
	case !info.IsDir():
		return api.ImportedAdvisories{}, fault.New(fault.Invalid, "advisories_path", "it is neither a file nor a directory")
	}
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := zipAdvisories(w, path)
		w.CloseWithError(err)
		done <- err
	}()
	out, err := c.ImportAdvisories(ctx, r)
	_ = r.CloseWithError(err) // the reader is gone
	zipped := <-done
	if err != nil {
		// The cause, if the directory could not be read: the server only saw the end of the stream.
		if zipped != nil && !errors.Is(zipped, err) && !errors.Is(zipped, io.ErrClosedPipe) {
			err = zipped
		}
		return out, err
	}
	return out, zipped
}

// zipAdvisories writes the JSON files below a directory as a zip.
func zipAdvisories(to io.Writer, dir string) error {
	w := zip.NewWriter(to)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.HasSuffix(path, ".json") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		entry, err := w.Create(filepath.ToSlash(name))
		if err == nil {
			_, err = io.Copy(entry, f)
		}
		return err
	})
	return errors.Join(err, w.Close())
}

func (a cacheVerbs) advisoryListCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the advisory databases", Args: cobra.NoArgs,
		Long: "List the advisory databases. NEWEST is when the newest advisory was last modified by its\npublisher. A database whose newest advisory is more than 14 days old is named in a warning.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				all, err := c.Advisories(cmd.Context())
				if err != nil {
					return fail("list advisory databases", err)
				}
				now := time.Now()
				for _, d := range all {
					if d.Stale {
						fmt.Fprintf(a.Stderr, "warning: the advisories of %s are more than 14 days old, and newer ones are unknown; download and import them again\n", inert(d.Ecosystem))
					}
				}
				return list(&a.terminal, &f, all, func(d api.AdvisoryDatabase) string { return d.Ecosystem },
					[]string{"ECOSYSTEM", "ADVISORIES", "PACKAGES", "IMPORTED", "NEWEST"}, func(d api.AdvisoryDatabase) []string {
						if d.Damaged {
							return []string{d.Ecosystem, "damaged", "", "", ""}
						}
						return []string{d.Ecosystem, fmt.Sprint(d.Advisories), fmt.Sprint(d.Packages), agoOrNever(d.ImportedAt, now), agoOrNever(d.ModifiedAt, now)}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func agoOrNever(at *time.Time, now time.Time) string {
	if at == nil {
		return "unknown"
	}
	return ago(*at, now)
}

func (a cacheVerbs) advisoryRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm ECOSYSTEM...", Aliases: []string{"remove"}, Short: "Remove advisory databases", Args: cobra.MinimumNArgs(1),
		Long: "Remove the advisory databases of ecosystems. Sandboxes whose policy has\npackages.advisories then cannot install packages of them.",
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return slices.DeleteFunc(packages.Ecosystems(), func(e string) bool { return slices.Contains(args, e) }), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.every(ctx, args, func(ecosystem string) error {
					if err := c.RemoveAdvisories(ctx, ecosystem); err != nil {
						return fail("remove the advisories of "+inert(ecosystem), err)
					}
					fmt.Fprintln(a.Stdout, inert(ecosystem))
					return nil
				})
			})
		},
	}
}

package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
)

// cacheVerbs are the commands about the package cache.
type cacheVerbs struct{ *app }

func (a cacheVerbs) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cache", Short: "Look at the package cache, and empty it",
		Long: "The package cache has what sandboxes installed whose policy has packages.cache. All\n" +
			"sandboxes share it, and none can change it. The setting package_budget limits its disk\n" +
			"space.",
		Example: "  crannog cache stats\n  crannog cache prune --keep 1g",
	}
	cmd.AddCommand(a.statsCommand(), a.listCommand(), a.pruneCommand(), a.verifyCommand(), a.advisoriesCommand())
	return cmd
}

// cacheStats is the output of crannog cache stats for one ecosystem.
type cacheStats struct {
	Ecosystem string `json:"ecosystem"`
	Packages  int    `json:"packages"`
	Files     int    `json:"files"`
	Documents int    `json:"documents"`
	Bytes     int64  `json:"size_bytes"`
}

func (a cacheVerbs) statsCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "stats", Short: "Count what the package cache has, by ecosystem", Args: cobra.NoArgs,
		Long: "Count what the package cache has, by ecosystem. FILES are versions of packages, and\n" +
			"DOCUMENTS what registries say about packages.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				cache, err := c.PackageCache(cmd.Context())
				if err != nil {
					return fail("read the package cache", err)
				}
				return list(&a.terminal, &f, statsOf(cache.Packages), func(s cacheStats) string { return s.Ecosystem },
					[]string{"ECOSYSTEM", "PACKAGES", "FILES", "DOCUMENTS", "SIZE"}, func(s cacheStats) []string {
						return []string{s.Ecosystem, fmt.Sprint(s.Packages), fmt.Sprint(s.Files), fmt.Sprint(s.Documents), bytesText(s.Bytes)}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}

// statsOf counts the entries of each ecosystem in a list that is ordered by ecosystem and name.
func statsOf(all []api.CachedPackage) []cacheStats {
	var out []cacheStats
	last := ""
	for _, p := range all {
		if len(out) == 0 || out[len(out)-1].Ecosystem != p.Ecosystem {
			out, last = append(out, cacheStats{Ecosystem: p.Ecosystem}), ""
		}
		s := &out[len(out)-1]
		if p.Name != last {
			s.Packages++
			last = p.Name
		}
		if p.Version == "" {
			s.Documents++
		} else {
			s.Files++
		}
		s.Bytes += p.Bytes
	}
	return out
}

func (a cacheVerbs) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List what the package cache has", Args: cobra.NoArgs,
		Long: "List what the package cache has. An entry without a version is what the registry says\nabout all versions of the package.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				cache, err := c.PackageCache(cmd.Context())
				if err != nil {
					return fail("read the package cache", err)
				}
				now := time.Now()
				return list(&a.terminal, &f, cache.Packages, func(p api.CachedPackage) string { return p.URL },
					[]string{"PACKAGE", "VERSION", "SIZE", "FETCHED", "USED", "SHA256"}, func(p api.CachedPackage) []string {
						return []string{p.Ecosystem + ":" + p.Name, shortVersion(p.Version), bytesText(p.Bytes), ago(p.FetchedAt, now), ago(p.UsedAt, now), p.SHA256[:12]}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}

// shortVersion shortens the version of an image's content, which is a digest.
func shortVersion(version string) string {
	if sum, ok := strings.CutPrefix(version, "sha256:"); ok && len(sum) > 12 {
		return "sha256:" + sum[:12]
	}
	return version
}

func (a cacheVerbs) pruneCommand() *cobra.Command {
	var keep string
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove data of the package cache", Args: cobra.NoArgs,
		Long:    "Remove the least recently used data of the package cache, until at most the size of\n--keep is left. What a sandbox needs again is fetched again.",
		Example: "  crannog cache prune --keep 1g",
		RunE: func(cmd *cobra.Command, _ []string) error {
			maxBytes, err := config.ParseSize(keep)
			if err != nil {
				return usagef("--keep %s: %v", keep, err)
			}
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				done, err := c.PrunePackages(ctx, maxBytes)
				if err != nil {
					return fail("prune the package cache", err)
				}
				if a.json {
					return a.object(done)
				}
				fmt.Fprintf(a.Stdout, "freed %s: %d entries\n", bytesText(done.FreedBytes), done.Removed)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "0", "`size` of the data to keep, such as 1g")
	return cmd
}

func (a cacheVerbs) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "verify", Short: "Compare the package cache with its digests", Args: cobra.NoArgs,
		Long: "Read everything in the package cache, and compare it with its digests. What is damaged is\n" +
			"removed, and fetched again when a sandbox needs it. The command fails if something was\n" +
			"damaged. Data is also compared when a sandbox gets it: what has 64 MiB or more at most\n" +
			"once a minute, and all else each time.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				done, err := c.VerifyPackages(ctx)
				if err != nil {
					return fail("verify the package cache", err)
				}
				if a.json {
					if err := a.object(done); err != nil {
						return err
					}
				} else {
					fmt.Fprintf(a.Stdout, "verified %d contents, %s\n", done.Verified, bytesText(done.Bytes))
				}
				if len(done.Damaged) > 0 {
					return fail("verify the package cache", fault.Newf(fault.Conflict, "package_damaged", "%d damaged contents were removed: %s", len(done.Damaged), strings.Join(done.Damaged, " ")))
				}
				return nil
			})
		},
	}
}

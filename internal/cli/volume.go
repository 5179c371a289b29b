package cli

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
)

// volumeVerbs are the commands about volumes.
type volumeVerbs struct{ *app }

func (a volumeVerbs) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "volume", Short: "Keep directories that outlive sandboxes, for crannog run --volume",
		Long: "Create, copy and remove volumes: named directories that outlive sandboxes. Several\n" +
			"sandboxes can have one at once. A volume has a size, which no program can exceed,\n" +
			"unless it was created with --unlimited.",
		Example: "  crannog volume create cache --size 2g\n  crannog run --volume cache:/cache -- make\n  crannog volume cp cache:/out ./out",
	}
	cmd.AddCommand(a.createCommand(), a.listCommand(), a.inspectCommand(), a.removeCommand(), a.copyCommand(), a.snapshotCommand())
	return cmd
}

func (a volumeVerbs) createCommand() *cobra.Command {
	var size string
	var req api.CreateVolume
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create an empty volume", Args: cobra.ExactArgs(1),
		Long: "Create an empty volume. Its whole size is reserved on the disk. A quota needs a\n" +
			"server that runs as root on a host with loop devices and mkfs.ext4; elsewhere it is\n" +
			"refused, and --unlimited creates a volume without one.",
		Example:           "  crannog volume create cache --size 2g --files 100000",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			req.Name = args[0]
			if size != "" {
				if req.Bytes, err = config.ParseSize(size); err != nil {
					return usagef("--size: %q is not a size such as 512m or 2g", size)
				}
			}
			return a.with(cmd.Context(), func(c *connection) error {
				v, err := c.CreateVolume(cmd.Context(), req)
				return a.printVolume(v, "create volume "+inert(args[0]), err)
			})
		},
	}
	cmd.Flags().StringVar(&size, "size", "", "`size` that it cannot exceed, such as 512m (default 1g)")
	cmd.Flags().Int64Var(&req.Files, "files", 0, "`number` of files and directories that it can hold (default: one for each 16k)")
	cmd.Flags().BoolVar(&req.Unlimited, "unlimited", false, "without a quota: only the disk of the host limits it")
	return cmd
}

// printVolume prints the name of a new volume, or one object.
func (a volumeVerbs) printVolume(v api.Volume, what string, err error) error {
	switch {
	case err != nil:
		return fail(what, err)
	case a.json:
		return a.object(v)
	}
	fmt.Fprintln(a.Stdout, inert(v.Name))
	return nil
}

func (a volumeVerbs) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List volumes", Args: cobra.NoArgs,
		Long: "List volumes. SIZE is the quota, or none. SANDBOXES is how many use the volume.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				volumes, err := c.Volumes(cmd.Context())
				if err != nil {
					return fail("list volumes", err)
				}
				now := time.Now()
				return list(&a.terminal, &f, volumes, func(v api.Volume) string { return v.Name },
					[]string{"NAME", "SIZE", "CREATED", "SANDBOXES", "FROM"}, func(v api.Volume) []string {
						size := "none"
						if v.Bytes > 0 {
							size = bytesText(v.Bytes)
						}
						return []string{v.Name, size, ago(v.CreatedAt, now), fmt.Sprint(len(v.Sandboxes)), v.From}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a volumeVerbs) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect VOLUME...", Short: "Describe volumes as JSON", Args: cobra.MinimumNArgs(1),
		Long:              "Describe volumes as JSON: quota, use, and the sandboxes that use them.",
		ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				return a.every(cmd.Context(), args, func(ref string) error {
					v, err := c.InspectVolume(cmd.Context(), ref)
					if err != nil {
						return fail("inspect "+inert(ref), err)
					}
					return a.object(v)
				})
			})
		},
	}
}

func (a volumeVerbs) removeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm VOLUME...", Aliases: []string{"remove"}, Short: "Remove volumes with their files", Args: cobra.MinimumNArgs(1),
		Long:              "Remove volumes with their files. A volume that a sandbox uses, even a paused one,\nis not removed.",
		ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.every(ctx, args, func(ref string) error {
					if err := c.RemoveVolume(ctx, ref); err != nil {
						return fail("remove volume "+inert(ref), err)
					}
					fmt.Fprintln(a.Stdout, inert(ref))
					return nil
				})
			})
		},
	}
}

func (a volumeVerbs) snapshotCommand() *cobra.Command {
	return &cobra.Command{
		Use: "snapshot VOLUME NAME", Short: "Copy a volume into a new one", Args: cobra.ExactArgs(2),
		Long: "Create a volume with the present files of another one. No running sandbox may have\n" +
			"that one writable, because the files could be half written.",
		Example:           "  crannog volume snapshot data data-monday",
		ValidArgsFunction: a.completeVolumes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				v, err := c.SnapshotVolume(ctx, args[0], args[1])
				return a.printVolume(v, "copy volume "+inert(args[0]), err)
			})
		},
	}
}

// splitVolume parses NAME:/PATH[:ro|:rw].
func splitVolume(text string) (api.VolumeMount, error) {
	name, target, ok := strings.Cut(text, ":")
	m := api.VolumeMount{Name: name, Target: target}
	if rest, found := strings.CutSuffix(target, ":ro"); found {
		m.Target, m.ReadOnly = rest, true
	}
	m.Target = strings.TrimSuffix(m.Target, ":rw")
	if !ok || name == "" || strings.HasPrefix(name, ".") || strings.Contains(name, "/") || !path.IsAbs(m.Target) {
		return m, usagef("--volume: %q is not NAME:/PATH[:ro]", text).
			hint("to mount a directory of the host, use --mount SRC[:DST][:ro|:cow], or --workspace DIR for /workspace")
	}
	if len(m.Target) > 1 {
		m.Target = strings.TrimSuffix(m.Target, "/")
	}
	return m, nil
}

// splitVolumes parses the values of --volume.
func splitVolumes(texts []string) (out []api.VolumeMount, err error) {
	for _, text := range texts {
		m, err := splitVolume(text)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// completeVolumes completes the names of volumes.
func (a volumeVerbs) completeVolumes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var found []cobra.Completion
	a.askServer(cmd.Context(), func(ctx context.Context, c *connection) error {
		volumes, err := c.Volumes(ctx)
		for _, v := range volumes {
			if !slices.Contains(args, v.Name) {
				found = append(found, v.Name)
			}
		}
		return err
	})
	return found, cobra.ShellCompDirectiveNoFileComp
}

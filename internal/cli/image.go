package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// imageVerbs are the commands about images.
type imageVerbs struct{ *app }

func (a imageVerbs) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: "image", Short: "Bring OCI images, from registries and files, for crannog run --image",
		Long: "Bring OCI images to this machine and remove them. crannog run --image IMAGE starts a\n" +
			"sandbox from one, and pulls it if it is not there. Credentials are Docker's: what\n" +
			"docker login saved, and credential helpers. The settings image_registries,\n" +
			"image_mirrors, image_insecure and image_budget limit the sources and the disk space.",
		Example: "  crannog image pull python:3.12-slim\n  docker save app:1 | crannog image import -\n  crannog run --image python:3.12-slim -- python app.py",
	}
	cmd.AddCommand(a.pullCommand(), a.pushCommand(), a.attachCommand(), a.attachedCommand(), a.importCommand(), a.exportCommand(), a.bootstrapCommand(),
		a.listCommand(), a.inspectCommand(), a.sbomCommand(), a.verifyCommand(), a.removeCommand(), a.pruneCommand())
	return cmd
}

func (a imageVerbs) pullCommand() *cobra.Command {
	var platform string
	cmd := &cobra.Command{
		Use: "pull IMAGE...", Short: "Fetch images from a registry", Args: cobra.MinimumNArgs(1),
		Long: "Fetch images from a registry and unpack them. An interrupted layer is continued,\n" +
			"also by a later pull. NAME@sha256:DIGEST pins an image.",
		Example:           "  crannog image pull python:3.12-slim ghcr.io/org/app:1",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.every(ctx, args, func(ref string) error {
					img, err := a.pullImage(ctx, c, api.PullImage{Image: ref, Platform: platform})
					return errors.Join(err, a.printImage(img, err))
				})
			})
		},
	}
	cmd.Flags().StringVar(&platform, "platform", "", "`platform` such as linux/arm64 (default: that of this machine)")
	return cmd
}

// pullImage pulls an image and shows the progress.
func (a imageVerbs) pullImage(ctx context.Context, c *connection, req api.PullImage) (api.Image, error) {
	line := a.imageProgress(req.Image)
	defer line.end()
	img, err := c.PullImage(ctx, req, line.event)
	if err != nil {
		return img, fail("pull "+inert(req.Image), err)
	}
	return img, nil
}

// printImage prints the pulled or imported image: its name and digest, or one object.
func (a imageVerbs) printImage(img api.Image, err error) error {
	switch {
	case err != nil:
		return nil
	case a.json:
		return a.object(img)
	}
	fmt.Fprintf(a.Stdout, "%s %s\n", inert(img.Name), img.Digest)
	return nil
}

func (a imageVerbs) pushCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "push IMAGE [TO]", Short: "Send an image to a registry", Args: cobra.RangeArgs(1, 2),
		Long:              "Send an image to the registry in its name, or to another name.",
		Example:           "  crannog image push app:1 ghcr.io/org/app:1",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				req := api.PushImage{Image: args[0]}
				if len(args) == 2 {
					req.To = args[1]
				}
				line := a.imageProgress(args[0])
				defer line.end()
				if err := c.PushImage(ctx, req, line.event); err != nil {
					return fail("push "+inert(args[0]), err)
				}
				return nil
			})
		},
	}
	return cmd
}

func (a imageVerbs) importCommand() *cobra.Command {
	var req api.ImportImage
	cmd := &cobra.Command{
		Use: "import FILE", Short: "Read images from a file: an OCI layout, or the output of docker save", Args: cobra.ExactArgs(1),
		Long: "Read images from a file: an OCI layout, as a directory or a tar, or what docker save\n" +
			"wrote; compressed or not. - is standard input.",
		Example: "  docker save app:1 | crannog image import -\n  crannog image import layout/ --name app:1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				path, done, err := a.archivePath(args[0])
				if err != nil {
					return fail("import "+args[0], err)
				}
				defer done()
				req.Path = path
				line := a.imageProgress(args[0])
				defer line.end()
				list, err := c.ImportImage(ctx, req, line.event)
				if err != nil {
					return fail("import "+args[0], err)
				}
				line.end()
				if a.json {
					return a.object(append([]api.Image{}, list...))
				}
				for _, img := range list {
					if err := a.printImage(img, nil); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&req.Name, "name", "", "`name` of the image (default: that in the file)")
	cmd.Flags().StringVar(&req.Platform, "platform", "", "`platform` of several (default: that of this machine)")
	return cmd
}

// archivePath returns a file's absolute path. Standard input is copied to a temporary file, which
// done removes, because an archive is read more than once.
func (a imageVerbs) archivePath(arg string) (path string, done func(), err error) {
	if arg != "-" {
		path, err = filepath.Abs(arg)
		return path, func() {}, err
	}
	f, err := os.CreateTemp("", "crannog-import-")
	if err != nil {
		return "", nil, err
	}
	done = func() { _ = os.Remove(f.Name()) }
	_, err = io.Copy(f, a.Stdin)
	if err = errors.Join(err, f.Close()); err != nil {
		done()
		return "", nil, err
	}
	return f.Name(), done, nil
}

func (a imageVerbs) exportCommand() *cobra.Command {
	var output, format string
	cmd := &cobra.Command{
		Use: "export IMAGE", Short: "Write an image to a file", Args: cobra.ExactArgs(1),
		Long:              "Write an image to a file, as a tar of an OCI layout or as docker load reads it.",
		Example:           "  crannog image export app:1 -o app.tar\n  crannog image export app:1 --format docker | docker load",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				if output == "" || output == "-" {
					if f, ok := a.Stdout.(*os.File); ok && isTerminal(f) {
						return usagef("cannot write an image to a terminal").hint("use -o FILE, or a pipe")
					}
					return a.exportResult(args[0], c.ExportImage(ctx, args[0], format, a.Stdout))
				}
				return a.exportResult(args[0], exportTo(output, func(w io.Writer) error { return c.ExportImage(ctx, args[0], format, w) }))
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write (default: standard output)")
	cmd.Flags().StringVar(&format, "format", "oci", "`format`: oci or docker")
	return cmd
}

// exportResult adds the operation to an error of an export.
func (a imageVerbs) exportResult(ref string, err error) error {
	if err != nil {
		return fail("export "+inert(ref), err)
	}
	return nil
}

// exportTo renames the file to its final name once it is complete.
func exportTo(path string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".crannog-export-")
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Chmod(0o644), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), path)
}

func (a imageVerbs) listCommand() *cobra.Command {
	var f listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List images", Args: cobra.NoArgs,
		Long: "List the images of this machine. SIZE is the size of the layers, UNPACKED that of the\n" +
			"files from which sandboxes start.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				images, err := c.Images(cmd.Context())
				if err != nil {
					return fail("list images", err)
				}
				now := time.Now()
				return list(&a.terminal, &f, images, func(i api.Image) string { return i.Name },
					[]string{"NAME", "DIGEST", "PLATFORM", "ADDED", "SIZE", "UNPACKED"}, func(i api.Image) []string {
						return []string{i.Name, shortDigest(i.Digest), i.Platform, ago(i.AddedAt, now), bytesText(i.Bytes), bytesText(i.Unpacked)}
					})
			})
		},
	}
	f.add(cmd)
	return cmd
}

// shortDigest returns the beginning of a digest, which commands accept.
func shortDigest(digest string) string {
	const length = len("sha256:") + 12
	if len(digest) > length {
		return digest[len("sha256:"):length]
	}
	return digest
}

func (a imageVerbs) inspectCommand() *cobra.Command {
	return &cobra.Command{
		Use: "inspect IMAGE...", Short: "Describe images as JSON", Args: cobra.MinimumNArgs(1),
		Long:              "Describe images as JSON: layers, user, environment, entrypoint and command.",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				return a.every(cmd.Context(), args, func(ref string) error {
					img, err := c.InspectImage(cmd.Context(), ref)
					if err != nil {
						return fail("inspect "+inert(ref), err)
					}
					return a.object(img)
				})
			})
		},
	}
}

func (a imageVerbs) removeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rm IMAGE...", Aliases: []string{"remove"}, Short: "Remove images", Args: cobra.MinimumNArgs(1),
		Long:              "Remove images by their names, or by the beginning of their digests. Sandboxes and\nsnapshots created from them keep the data that they need.",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				return a.every(ctx, args, func(ref string) error {
					removed, err := c.RemoveImage(ctx, ref)
					if err != nil {
						return fail("remove image "+inert(ref), err)
					}
					if a.json {
						return a.object(api.RemovedImages{Removed: append([]string{}, removed...)})
					}
					for _, name := range removed {
						fmt.Fprintln(a.Stdout, inert(name))
					}
					return nil
				})
			})
		},
	}
}

func (a imageVerbs) pruneCommand() *cobra.Command {
	return &cobra.Command{
		Use: "prune", Short: "Remove image data that no image, sandbox or snapshot needs", Args: cobra.NoArgs,
		Long: "Remove layers and files that no image, sandbox or snapshot needs. Named images stay.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				done, err := c.PruneImages(ctx)
				if err != nil {
					return fail("prune images", err)
				}
				if a.json {
					return a.object(done)
				}
				fmt.Fprintf(a.Stdout, "freed %s: %d layers, %d trees\n", bytesText(done.FreedBytes), done.Blobs, done.Trees)
				return nil
			})
		},
	}
}

// missingImage reports whether an error means that the image does not exist.
func missingImage(err error) bool {
	return crannog.Code(err) == "image_not_found"
}

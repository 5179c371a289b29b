package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/image/sbom"
)

func (a imageVerbs) sbomCommand() *cobra.Command {
	var output, format string
	cmd := &cobra.Command{
		Use: "sbom IMAGE", Short: "List the packages in an image as an SBOM", Args: cobra.ExactArgs(1),
		Long: "List the packages in an image as JSON of SPDX 2.3 or CycloneDX 1.5. It has what the\n" +
			"databases of dpkg and apk list, installed npm modules and Python distributions, what\n" +
			"npm's lock files name (a program that is one bundled file has no modules), and the\n" +
			"modules of Go programs. The files are those of the image, which may have changed\n" +
			"them: it is no proof of what is in them. The same image gives the same document.",
		Example:           "  crannog image sbom app:1 -o app.spdx.json\n  crannog image sbom app:1 --format cyclonedx | jq -r '.components[].purl'",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := sbom.CheckFormat(format); err != nil {
				return usagef("--format: %q is neither spdx nor cyclonedx", format)
			}
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				img, err := c.InspectImage(ctx, args[0])
				if err != nil {
					return fail("list the packages of "+inert(args[0]), err)
				}
				return a.writeSBOM(ctx, c, img, format, output)
			})
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`file` to write (default: standard output)")
	cmd.Flags().StringVar(&format, "format", sbom.SPDX, "`format`: spdx or cyclonedx")
	return cmd
}

// writeSBOM writes the SBOM of an image to a file, or to standard output.
func (a imageVerbs) writeSBOM(ctx context.Context, c *connection, img api.Image, format, output string) error {
	list, err := packagesOf(ctx, c, img.Name)
	if err != nil {
		return fail("list the packages of "+inert(img.Name), err)
	}
	if list.Unread > 0 {
		a.note("%d files that should name packages cannot be read", list.Unread)
	}
	of := sbom.Subject{Name: img.Name, Digest: img.Digest, Created: time.Unix(0, 0)}
	if img.MadeAt != nil {
		of.Created = *img.MadeAt
	}
	if output == "" || output == "-" {
		return sbom.Write(a.Stdout, format, of, list)
	}
	if err := exportTo(output, func(w io.Writer) error { return sbom.Write(w, format, of, list) }); err != nil {
		return fail("write "+output, err)
	}
	return nil
}

// packagesOf reads the files of an image, which is first copied to an unnamed file, because its
// layers are read from the last one to the first.
func packagesOf(ctx context.Context, c *connection, name string) (list sbom.List, err error) {
	f, err := os.CreateTemp("", "crannog-sbom-")
	if err != nil {
		return list, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Remove(f.Name()); err != nil {
		return list, err
	}
	if err := c.ExportImage(ctx, name, "docker", f); err != nil {
		return list, err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return list, err
	}
	var img v1.Image
	img, err = tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(f, 0, size)), nil }, nil)
	if err != nil {
		return list, err
	}
	files := mutate.Extract(img)
	defer files.Close()
	return sbom.Scan(ctx, files)
}

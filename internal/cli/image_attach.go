package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
)

func (a imageVerbs) attachCommand() *cobra.Command {
	var req api.AttachToImage
	cmd := &cobra.Command{
		Use: "attach IMAGE FILE", Short: "Attach an SBOM, a provenance or another file to an image in a registry", Args: cobra.ExactArgs(2),
		Long: "Attach a file to an image that was pushed, so that others find it in the registry: as a\n" +
			"referrer of the image, as OCI describes it. Registries without referrers get a tag\n" +
			"instead, named after the image's digest. The same file is attached only once.\n\n" +
			"The type of an SBOM (SPDX or CycloneDX, as JSON) and of a signed provenance is found by\n" +
			"itself. Other files need --type.",
		Example: "  crannog image attach ghcr.io/org/app:1 app.spdx.json\n" +
			"  crannog image attach app:1 scan.sarif --to ghcr.io/org/app:1 --type application/sarif+json",
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				req.Image = args[0]
				return a.attach(ctx, c, req, args[1])
			})
		},
	}
	cmd.Flags().StringVar(&req.To, "to", "", "`reference` under which the image was pushed (default: its own name)")
	cmd.Flags().StringVar(&req.Type, "type", "", "media `type` of the file")
	return cmd
}

// attach attaches a file, and prints its type and the digest of its manifest.
func (a imageVerbs) attach(ctx context.Context, c *connection, req api.AttachToImage, file string) error {
	out, err := a.attachFile(ctx, c, &req, file)
	if err != nil {
		return err
	}
	if a.json {
		return a.object(out)
	}
	fmt.Fprintf(a.Stdout, "%s %s\n", req.Type, out.Digest)
	return nil
}

// attachFile attaches a file, and sets the type in the request if it has none.
func (a imageVerbs) attachFile(ctx context.Context, c *connection, req *api.AttachToImage, file string) (out api.AttachedFile, err error) {
	op := "attach " + inert(file) + " to " + inert(req.Image)
	path, done, err := a.archivePath(file)
	if err != nil {
		return out, fail(op, err)
	}
	defer done()
	req.Path = path
	if req.Type == "" {
		if req.Type, err = attachmentType(path); err != nil {
			return out, fail(op, err)
		}
		if req.Type == "" {
			return out, usagef("%s is neither an SBOM nor a provenance", inert(file)).hint("name its media type with --type")
		}
	}
	if out, err = c.AttachToImage(ctx, *req); err != nil {
		return out, fail(op, err)
	}
	return out, nil
}

// Media types of files about images.
const (
	spdxType       = "application/spdx+json"
	cycloneDXType  = "application/vnd.cyclonedx+json"
	provenanceType = "application/vnd.in-toto.provenance+dsse"
)

// attachmentType returns the media type of a file, or "" if it is not known.
func attachmentType(path string) (string, error) {
	data, err := readAll(path)
	if err != nil {
		return "", err
	}
	var has struct {
		SPDX    string `json:"spdxVersion"`
		Form    string `json:"bomFormat"`
		Payload string `json:"payloadType"`
	}
	switch {
	case json.Unmarshal(data, &has) != nil: // it is not JSON
	case has.SPDX != "":
		return spdxType, nil
	case has.Form == "CycloneDX":
		return cycloneDXType, nil
	case has.Payload == provenance.PayloadType:
		return provenanceType, nil
	}
	return "", nil
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
)

// writeBuildProvenance writes the signed statement about a build to a new file.
func writeBuildProvenance(ctx context.Context, c *connection, build, file string) error {
	b, err := c.BuildByID(ctx, build)
	if err != nil {
		return err
	}
	if len(b.Provenance) == 0 {
		return errors.New("the server has not signed a statement; it has an earlier version")
	}
	return toNewFile(file, func(w io.Writer) error { _, err := w.Write(append(b.Provenance, '\n')); return err })
}

func (a imageVerbs) verifyCommand() *cobra.Command {
	var f artifactFlags
	cmd := &cobra.Command{
		Use: "verify IMAGE --provenance ENVELOPE", Short: "Verify the provenance of an image that was built from a Dockerfile", Args: cobra.ExactArgs(1),
		Long: "Verify that IMAGE was built as a signed statement describes, and print the statement.\n" +
			"IMAGE is an image of this machine, or a digest as sha256:HEX, for which no server is\n" +
			"needed. The key comes from --key, or is this machine's own, and never from the\n" +
			"envelope.\n\n" +
			"Exit codes: 0 verified, 1 not verified, 2 it could not be checked.",
		Example: "  crannog template build -t app:1 --provenance app.json .\n" +
			"  crannog image verify app:1 --provenance app.json\n" +
			"  crannog image verify sha256:… --provenance app.json --key builder.pem",
		Annotations:       map[string]string{"code": "check"},
		ValidArgsFunction: a.completeImages,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, "crannog template build --provenance writes one"); err != nil {
				return err
			}
			return a.verifyImage(cmd.Context(), args[0], &f)
		},
	}
	f.add(cmd)
	return cmd
}

// digestOf returns the digest of an image, which the argument may already be.
func (a imageVerbs) digestOf(ctx context.Context, ref string) (digest string, err error) {
	if parsed, err := v1.NewHash(ref); err == nil {
		return parsed.String(), nil
	}
	err = a.with(ctx, func(c *connection) error {
		img, err := c.InspectImage(ctx, ref)
		digest = img.Digest
		return err
	})
	return digest, err
}

func (a imageVerbs) verifyImage(ctx context.Context, ref string, f *artifactFlags) error {
	op := "verify " + inert(ref)
	check := crannog.ImageCheck{Policy: f.policy}
	var owner string
	var err error
	if check.Digest, err = a.digestOf(ctx, ref); err != nil {
		return fail(op, err)
	}
	if check.Envelope, err = readAll(f.provenance); err != nil {
		return fail(op, err)
	}
	if check.Key, check.RecordKey, owner, err = auditVerbs(a).signerKeys(f); err != nil {
		return fail(op, err)
	}
	v, err := crannog.VerifyImage(check)
	if err != nil {
		return fail(op, err)
	}
	return auditVerbs(a).reportCheck(op, v, owner, func() error { return a.reportImage(ref, v, owner) })
}

// reportImage prints the statement.
func (a imageVerbs) reportImage(ref string, v api.ProvenanceCheck, owner string) error {
	var st provenance.ImageStatement
	if err := json.Unmarshal(v.Statement, &st); err != nil {
		return err
	}
	d, run := st.Predicate.BuildDefinition, st.Predicate.RunDetails
	fmt.Fprintf(a.Stdout, "ok: %s is %s, as built from a Dockerfile\n", inert(ref), inert(v.Subject))
	lines := statementLines{a.Stdout, len("dockerfile")}
	line := lines.add
	line("sha256", v.SHA256)
	line("build", run.Metadata.InvocationID)
	line("dockerfile", "sha256:"+d.ExternalParameters.Dockerfile)
	if sum := d.ExternalParameters.Context; sum != "" {
		line("context", "sha256:"+sum)
	}
	line("target", d.ExternalParameters.Target)
	line("arguments", strings.Join(d.ExternalParameters.Args, ", "))
	line("secrets", strings.Join(d.ExternalParameters.Secrets, ", "))
	line("policy", d.ExternalParameters.Policy+" from level "+d.ExternalParameters.Level)
	for _, r := range d.ResolvedDependencies {
		text := r.Name + r.URI
		switch {
		case r.Digest == nil:
			text += ", of unknown content"
		case r.Digest.GitCommit != "":
			text += " at commit " + r.Digest.GitCommit
		default:
			text += " as sha256:" + r.Digest.SHA256
		}
		line("from", text)
	}
	lines.addRun("built", run, v, owner)
	return nil
}

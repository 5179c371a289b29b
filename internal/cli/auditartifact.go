package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/fault"
)

// artifactFlags are the flags of crannog audit verify-artifact.
type artifactFlags struct {
	provenance, key, recordKey, as, policy string
}

func (a auditVerbs) auditArtifactCommand() *cobra.Command {
	var f artifactFlags
	cmd := &cobra.Command{
		Use: "verify-artifact FILE --provenance ENVELOPE", Short: "Verify the provenance of a file that was exported from a sandbox", Args: cobra.ExactArgs(1),
		Long: "Verify that FILE was exported from a sandbox as a signed statement describes, and print the\n" +
			"statement. No server is needed. The key comes from --key, or is this machine's own,\n" +
			"and never from the envelope. FILE is the export, or with --as one of its files. For\n" +
			"crannog apply, FILE is the applied file of that path.\n\n" +
			"Exit codes: 0 verified, 1 not verified, 2 it could not be checked.",
		Example: "  crannog audit verify-artifact out.tar --provenance out.json\n" +
			"  crannog audit verify-artifact out.tar --provenance out.json --key builder.pem --policy sha256:…\n" +
			"  crannog audit verify-artifact dist/app --provenance out.json --as /workspace/dist/app",
		Annotations: map[string]string{"code": "check"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, "crannog export --provenance writes one"); err != nil {
				return err
			}
			return a.verifyArtifact(args[0], &f)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.as, "as", "", "`name` under which FILE was exported, such as /workspace/dist/app")
	return cmd
}

// add defines the flags that exports and images have in common.
func (f *artifactFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.provenance, "provenance", "", "`file` with the signed statement")
	cmd.Flags().StringVar(&f.key, "key", "", "`file` with the public key that must have signed it (default: this machine's)")
	cmd.Flags().StringVar(&f.recordKey, "record-key", "", "verifier `key` that must have signed the signed tree head")
	cmd.Flags().StringVar(&f.policy, "policy", "", "`digest` of the policy that must have been in force")
}

// check refuses a missing envelope and empty values. An empty value comes from a script whose
// variable was not set. It must not be treated like a missing flag.
func (f *artifactFlags) check(cmd *cobra.Command, origin string) error {
	for _, name := range []string{"key", "record-key", "as", "policy"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() == "" {
			return usagef("--%s is empty", name)
		}
	}
	if f.provenance == "" {
		return usagef("%s needs --provenance ENVELOPE", cmd.Name()).hint(origin)
	}
	return nil
}

func (a auditVerbs) verifyArtifact(name string, f *artifactFlags) error {
	op := "verify " + name
	envelope, err := readAll(f.provenance)
	if err != nil {
		return fail(op, err)
	}
	check := crannog.ArtifactCheck{Envelope: envelope, As: f.as, Policy: f.policy}
	var owner string
	if check.Key, check.RecordKey, owner, err = a.signerKeys(f); err != nil {
		return fail(op, err)
	}
	if check.Path, err = filepath.Abs(name); err != nil {
		return fail(op, err)
	}
	file, err := os.Open(name)
	if err != nil {
		return fail(op, err)
	}
	defer file.Close()
	check.File = file
	v, err := crannog.VerifyArtifact(check)
	if err != nil {
		return fail(op, err)
	}
	return a.reportCheck(op, v, owner, func() error { return a.reportArtifact(name, v, owner) })
}

// reportCheck prints the result of a verification. report prints the statement.
func (a auditVerbs) reportCheck(op string, v api.ProvenanceCheck, owner string, report func() error) error {
	switch {
	case a.json:
		if err := a.object(v); err != nil {
			return err
		}
	case v.OK && !a.quiet:
		if err := report(); err != nil {
			return fail(op, err)
		}
	case !v.OK:
		for _, found := range v.Findings {
			fmt.Fprintf(a.Stdout, "%s: %s\n", found.Fault, inert(found.Text))
		}
		if !a.quiet {
			fmt.Fprintf(a.Stdout, "verified with the key %s, %s\n", v.Key, owner)
		}
	}
	if !v.OK {
		return exitCode(codeFound)
	}
	return nil
}

// signerKeys returns the keys to verify with, and a description of their origin. With --key, this
// machine's key of the audit log is not used, because it belongs to another server.
func (a auditVerbs) signerKeys(f *artifactFlags) (key, recordKey, origin string, err error) {
	if f.key != "" {
		text, err := readAll(f.key)
		return string(text), f.recordKey, "from " + f.key, err
	}
	if a.config.Client.URL != "" {
		return "", "", "", usagef("verifying a statement of another server needs --key FILE").
			hint("crannog audit key prints it; transfer it over a trusted channel")
	}
	dir := filepath.Join(a.config.State, provenance.DirName)
	public, err := provenance.NewKeys(dir).Public()
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = usagef("no key to verify with in %s", dir).hint("give the key of the signer: --key FILE")
		}
		return "", "", "", err
	}
	recordKey = f.recordKey
	if recordKey == "" {
		recordKey, err = audit.ReadKey(filepath.Join(a.config.State, "record"))
	}
	return public.PEM(), recordKey, "this machine's key, from " + dir, err
}

// reportArtifact prints the statement.
func (a auditVerbs) reportArtifact(name string, v api.ProvenanceCheck, owner string) error {
	var st provenance.Statement
	if err := json.Unmarshal(v.Statement, &st); err != nil {
		return err
	}
	d, run := st.Predicate.BuildDefinition, st.Predicate.RunDetails
	fmt.Fprintf(a.Stdout, "ok: %s is %s, as exported from a sandbox\n", inert(name), inert(v.Subject))
	lines := statementLines{a.Stdout, len("came out ")}
	line := lines.add
	line("sha256", v.SHA256)
	line("sandbox", run.Metadata.InvocationID)
	line("template", d.ExternalParameters.Template)
	line("engine", strings.TrimSpace(d.InternalParameters.Engine+" "+d.InternalParameters.Boundary))
	line("policy", d.ExternalParameters.Policy+" from level "+d.ExternalParameters.Level)
	line("changes", d.InternalParameters.Changes)
	if n := d.InternalParameters.Masked; n > 0 {
		line("masked", "redacted secrets in "+fileCount(n))
	}
	line("approval", d.InternalParameters.Approval)
	for _, dep := range d.ResolvedDependencies {
		if dep.Digest != nil && dep.Digest.GitCommit != "" {
			line("began at", "commit "+dep.Digest.GitCommit)
		}
	}
	lines.addRun("came out", run, v, owner)
	return nil
}

// statementLines prints the parts of a statement, each after a label of this width.
type statementLines struct {
	out   io.Writer
	width int
}

// add prints one part, unless it is empty.
func (l statementLines) add(label, text string) {
	if text != "" {
		fmt.Fprintf(l.out, "  %-*s %s\n", l.width, label, inert(text))
	}
}

// addRun prints when and where a sandbox or a build ran, and what the statement was verified with.
// ended is the label of the time of its end.
func (l statementLines) addRun(ended string, run provenance.RunDetails, v api.ProvenanceCheck, owner string) {
	if t := run.Metadata.StartedOn; t != nil {
		l.add("started", t.Format(time.RFC3339))
	}
	if t := run.Metadata.FinishedOn; t != nil {
		l.add(ended, t.Format(time.RFC3339))
	}
	l.add("builder", run.Builder.ID+" "+run.Builder.Version["crannog"])
	l.add("record", recordLine(run, v.RecordKey))
	l.add("key", v.Key+", "+owner)
}

// recordLine describes the signed tree head of a statement. key has signed it; "" means that it was
// not compared.
func recordLine(run provenance.RunDetails, key string) string {
	point, ok := run.Checkpoint()
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%d entries, root %s", point.Size, point.Root)
	if key == "" {
		return text + "; not compared (--record-key compares it)"
	}
	return text + "; signed by " + key
}

func (a auditVerbs) auditKeyCommand() *cobra.Command {
	var ofRecord bool
	cmd := &cobra.Command{
		Use: "key", Short: "Print the public key of exports or of the audit log", Args: cobra.NoArgs,
		Long: "Print the public key that exports are signed with, in PEM, for verify-artifact --key\n" +
			"on another machine. With --record, print the key that signs tree heads. Distribute\n" +
			"keys over a trusted channel, separately from what they verify.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				if ofRecord {
					key, err := c.RecordKey(cmd.Context())
					if err != nil {
						return fail("read the key of the audit log", err)
					}
					_, err = fmt.Fprintln(a.Stdout, printable(key))
					return err
				}
				key, err := c.ProvenanceKey(cmd.Context())
				if err != nil {
					return fail("read the key", err)
				}
				if a.json {
					return a.object(key)
				}
				_, err = fmt.Fprint(a.Stdout, printable(key.Key))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&ofRecord, "record", false, "print the key that signs tree heads")
	return cmd
}

// writeWithProvenance writes a file and its provenance: both or neither.
func writeWithProvenance(name, provenance string, write func(file, envelope io.Writer) error) error {
	made := false
	err := toNewFile(provenance, func(envelope io.Writer) error {
		err := toNewFile(name, func(file io.Writer) error { return write(file, envelope) })
		made = err == nil
		return err
	})
	if err != nil && made {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/fault"
)

func (a auditVerbs) auditVerifyCommand() *cobra.Command {
	var against []string
	var key string
	cmd := &cobra.Command{
		Use: "verify [FILE]", Short: "Verify the audit log, and name the first entry that was changed", Args: cobra.MaximumNArgs(1),
		Long: "Verify the whole audit log, or an exported FILE, and name the first entry that was\n" +
			"changed, removed, moved or cut off. An attacker who has the log's private key could\n" +
			"rewrite the whole history; signed tree heads that were stored on another\n" +
			"machine, given with --against, detect that too.\n\n" +
			"Exit codes: 0 the log is unchanged, 1 it was changed, 2 it could not be checked.",
		Example:     "  crannog audit verify\n  crannog audit verify --against /mnt/elsewhere/checkpoints\n  crannog audit verify record.jsonl --key crannog/0a1b2c3d+…",
		Annotations: map[string]string{"code": "check"},
		RunE: func(cmd *cobra.Command, args []string) error {
			notes, err := readNotes(against)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return a.verifyFile(args[0], key, notes)
			}
			if key != "" {
				return usagef("--key needs a FILE: the audit log has its own key")
			}
			return a.with(cmd.Context(), func(c *connection) error {
				v, err := c.VerifyRecord(cmd.Context(), notes...)
				if err != nil {
					return fail("verify the audit log", err)
				}
				return a.verdict(v)
			})
		},
	}
	cmd.Flags().StringArrayVar(&against, "against", nil, "`file` of signed tree heads that were stored elsewhere")
	cmd.Flags().StringVar(&key, "key", "", "verifier `key` of the audit log that FILE was exported from")
	return cmd
}

// readNotes reads signed tree heads from files.
func readNotes(files []string) ([]string, error) {
	var out []string
	for _, name := range files {
		data, err := readAll(name)
		var notes []string
		if err == nil {
			notes, err = audit.Notes(data)
		}
		if err == nil && len(notes) == 0 {
			err = fault.New(fault.Invalid, "checkpoint_invalid", "it has no signed tree head")
		}
		if err != nil {
			return nil, fail("read signed tree heads from "+name, err)
		}
		out = append(out, notes...)
	}
	return out, nil
}

// maxSideFile bounds files that are read as a whole, such as tree heads, a proof or a provenance.
const maxSideFile = 64 << 20

// readAll reads a file of at most maxSideFile bytes.
func readAll(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSideFile+1))
	if len(data) > maxSideFile {
		return nil, fault.Newf(fault.Invalid, "file_too_large", "%s is larger than %d bytes", name, maxSideFile)
	}
	return data, err
}

func (a auditVerbs) verifyFile(name, key string, notes []string) error {
	if key == "" {
		return usagef("verifying a file needs the key of its audit log").
			hint("crannog audit export prints it; get it from the server's administrator, not with the file")
	}
	f, err := os.Open(name)
	if err != nil {
		return fail("verify "+name, err)
	}
	defer f.Close()
	v, err := crannog.VerifyRecordFile(f, key, notes...)
	if err != nil {
		return fail("verify "+name, err)
	}
	return a.verdict(v)
}

// verdict prints the result of a verification. It returns an exit code if the log was changed.
func (a auditVerbs) verdict(v api.Verification) error {
	switch {
	case a.json:
		if err := a.object(v); err != nil {
			return err
		}
	case v.OK && !a.quiet:
		fmt.Fprintf(a.Stdout, "ok: %d entries from number %d on are unchanged, and %d signed tree heads agree\n", v.Entries, v.First, v.Checkpoints)
		if v.Uncovered > 0 {
			fmt.Fprintf(a.Stdout, "    the newest %d are not signed yet\n", v.Uncovered)
		}
	case !v.OK:
		fmt.Fprintf(a.Stdout, "%s: entry %d: %s\n", v.Fault, v.Seq, inert(v.Text))
	}
	if !v.OK {
		return exitCode(codeFound)
	}
	return nil
}

func (a auditVerbs) auditCheckpointCommand() *cobra.Command {
	return &cobra.Command{
		Use: "checkpoint", Short: "Print the newest signed tree head of the audit log", Args: cobra.NoArgs,
		Long: "Print the newest signed tree head: a signed statement of the audit log's size and\n" +
			"root hash. Keep it on another machine. audit verify --against then detects a\n" +
			"rewritten history.",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd.Context(), func(c *connection) error {
				p, err := c.Checkpoint(cmd.Context())
				if err != nil {
					return fail("sign a tree head", err)
				}
				if a.json {
					return a.object(p)
				}
				_, err = fmt.Fprint(a.Stdout, printable(p.Note))
				return err
			})
		},
	}
}

func (a auditVerbs) auditExportCommand() *cobra.Command {
	var f entryFlags
	var out string
	cmd := &cobra.Command{
		Use: "export", Short: "Export entries in a form that can be verified without the server", Args: cobra.NoArgs,
		Example:           "  crannog audit export -o record.jsonl\n  crannog audit export --sandbox mybox --since 24h | gzip > mybox.jsonl.gz",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return a.with(ctx, func(c *connection) error {
				o, err := f.options(ctx, c, time.Now())
				if err != nil {
					return err
				}
				err = a.writeTo(out, func(w io.Writer) error { return c.ExportRecord(ctx, o, w) })
				if err != nil {
					return fail("export the audit log", err)
				}
				return a.reportKey(ctx, c)
			})
		},
	}
	f.add(a.app, cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "new `file` to write (default: standard output)")
	return cmd
}

// reportKey prints the public key, which a recipient of the file needs to verify it.
func (a auditVerbs) reportKey(ctx context.Context, c *connection) error {
	key, err := c.RecordKey(ctx)
	if err != nil {
		return fail("read the key of the audit log", err)
	}
	if !a.quiet {
		a.note("verify it with --key '%s'", printable(key))
	}
	return nil
}

// writeTo writes a new file, or standard output. After an error no partial file is left.
func (a auditVerbs) writeTo(name string, work func(io.Writer) error) error {
	if name == "" {
		return work(a.Stdout)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(work(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func (a auditVerbs) auditProveCommand() *cobra.Command {
	var out, check, key string
	cmd := &cobra.Command{
		Use: "prove SEQ | prove --check FILE", Short: "Prove that an entry is in the audit log, or check such a proof", Args: cobra.MaximumNArgs(1),
		Long: "Write a proof that one entry is in the audit log, or check a proof. Checking needs\n" +
			"no server.\n\n" +
			"Exit codes: 0 written, or the proof holds; 1 it does not; 2 it could not be checked.",
		Example:           "  crannog audit prove 1234 -o entry.proof\n  crannog audit prove --check entry.proof --key crannog/0a1b2c3d+…",
		Annotations:       map[string]string{"code": "check"},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case check != "" && len(args) == 0 && out == "":
				return a.checkProof(check, key)
			case check != "" || len(args) == 0:
				return usagef("name an entry, or a proof to check with --check")
			case key != "":
				return usagef("--key needs --check: the audit log has its own key")
			}
			seq, err := sequence(args[0])
			if err != nil {
				return err
			}
			return a.with(cmd.Context(), func(c *connection) error {
				p, err := c.Proof(cmd.Context(), seq)
				if err != nil {
					return fail("prove the entry", err)
				}
				if err := a.writeTo(out, proofJSON(p)); err != nil {
					return fail("write the proof", err)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "new `file` to write (default: standard output)")
	cmd.Flags().StringVar(&check, "check", "", "`file` with a proof to check")
	cmd.Flags().StringVar(&key, "key", "", "verifier `key` that must have signed the proof")
	return cmd
}

func proofJSON(p api.Proof) func(io.Writer) error {
	return func(w io.Writer) error { return json.NewEncoder(w).Encode(p) }
}

func (a auditVerbs) checkProof(name, key string) error {
	data, err := readAll(name)
	if err != nil {
		return fail("check "+name, err)
	}
	var p api.Proof
	if err := json.Unmarshal(data, &p); err != nil || p.Entry == "" {
		return fail("check "+name, errors.Join(fault.New(fault.Invalid, "proof_invalid", "the file is not a proof"), err))
	}
	if key != "" && key != p.Key {
		fmt.Fprintf(a.Stdout, "the proof is of another audit log, with the key %s\n", inert(p.Key))
		return exitCode(codeFound)
	}
	e, err := crannog.CheckProof(p)
	if err != nil {
		fmt.Fprintf(a.Stdout, "the proof does not hold: %s\n", inert(err.Error()))
		return exitCode(codeFound)
	}
	if a.json {
		return a.object(e)
	}
	fmt.Fprintln(a.Stdout, entryLine(e))
	if !a.quiet {
		fmt.Fprintf(a.Stdout, "is in the audit log of %d entries that %s signed\n", p.Checkpoint.Size, inert(p.Key))
		if key == "" {
			a.note("the proof does not identify the owner of the key: compare the key, or give it with --key")
		}
	}
	return nil
}

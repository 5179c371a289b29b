package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/approval"
)

// codePending is the fault code of changes that wait for an approval.
const codePending = "export_pending"

type applyFlags struct {
	dry, protected, overwrite, assumeYes bool
	provenance                           string
}

func (a changeVerbs) applyCommand() *cobra.Command {
	var f applyFlags
	cmd := &cobra.Command{
		Use: "apply [SANDBOX] [PATH...]", Short: "Apply a sandbox's changes to its workspace on the host",
		Long: "Apply a sandbox's changes below /workspace to its workspace on the host, or apply\n" +
			"the retained changes of the last run in this directory. Either all of the selected\n" +
			"changes are applied or none. Links that point out of the workspace, setuid files and\n" +
			"devices are never applied. Protected files and files that tools run by themselves\n" +
			"need --protected. Files that were changed on the host since need --overwrite. Where\n" +
			"the policy asks, this command asks at the terminal; without a terminal, crannog\n" +
			"approve approves exactly these changes once.",
		Example:           "  crannog apply\n  crannog apply --dry-run mybox\n  crannog apply mybox src/ '**/*.md'",
		ValidArgsFunction: a.completeOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.with(cmd.Context(), func(c *connection) error { return a.apply(cmd, c, &f, args) })
		},
	}
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "show what would be applied, and change nothing")
	cmd.Flags().BoolVar(&f.protected, "protected", false, "include protected files and files that tools run by themselves")
	cmd.Flags().BoolVar(&f.overwrite, "overwrite", false, "also overwrite files that were changed here since")
	cmd.Flags().StringVar(&f.provenance, "provenance", "", "write a signed statement about the files to a `file`, for crannog audit verify-artifact")
	cmd.Flags().BoolVarP(&f.assumeYes, "yes", "y", false, "do not ask about flagged files; the policy still asks")
	return cmd
}

func (a changeVerbs) apply(cmd *cobra.Command, c *connection, f *applyFlags, args []string) error {
	ctx := cmd.Context()
	if f.provenance != "" {
		// This is checked first, because applied changes cannot be undone.
		if err := checkVacant(f.provenance); err != nil {
			return fail("write the provenance", err)
		}
	}
	t, err := a.changesOf(ctx, c, cmd, args)
	if err != nil {
		return err
	}
	req := api.Apply{Paths: t.paths, Protected: f.protected, Overwrite: f.overwrite, DryRun: true}
	stop := a.progress("comparing files")
	plan, err := c.ApplyOf(ctx, t.id, req)
	stop()
	if err != nil {
		return fail("read the changes of "+t.name, err)
	}
	if f.dry || len(plan.Applied) == 0 {
		return a.printApplied(plan)
	}
	needsApproval := plan.Effect == string(egress.Ask)
	flagged := slices.ContainsFunc(plan.Applied, func(ch api.Change) bool { return len(ch.Flags) > 0 })
	atTerminal := a.interactive() && !f.assumeYes
	if atTerminal && (needsApproval || flagged) {
		a.showPlan(plan)
		if err := a.confirm(false, false, fmt.Sprintf("apply %s to %s", fileCount(len(plan.Applied)), first(t.workspace, "the directory"))); err != nil {
			return err
		}
	}
	// The digest ensures that only the shown changes are applied.
	req.Digest, req.DryRun, req.Provenance = plan.Digest, false, f.provenance != ""
	done, err := c.ApplyOf(ctx, t.id, req)
	if crannog.Code(err) == codePending && atTerminal && needsApproval {
		if err := a.approveChanges(ctx, c, t.id, plan.Digest); err != nil {
			return err
		}
		done, err = c.ApplyOf(ctx, t.id, req)
	}
	if err != nil {
		return fail("apply the changes of "+t.name+" here", err)
	}
	if f.provenance != "" {
		err := toNewFile(f.provenance, func(w io.Writer) error { _, err := w.Write(append(done.Provenance, '\n')); return err })
		if err != nil {
			return fail("write the provenance of applied changes", err)
		}
	}
	return a.printApplied(done)
}

// approveChanges approves the request for exactly the changes that the person at the terminal has
// just confirmed.
func (a changeVerbs) approveChanges(ctx context.Context, c *connection, id, digest string) error {
	// The request is not filtered by sandbox, because the sandbox may have ended.
	rows, err := c.Approvals(ctx, crannog.ApprovalOptions{})
	if err != nil {
		return fail("find the approval", err)
	}
	for _, r := range rows {
		if r.Sandbox != id || r.State != string(approval.Pending) || r.Facts["digest"] != digest {
			continue
		}
		if r.Kind != egress.AskExport && r.Kind != egress.AskDelete {
			continue
		}
		r, err := c.Approve(ctx, r.ID, "approved at the terminal", false)
		if err != nil {
			return fail("approve the changes", err)
		}
		approvalVerbs(a).reportMissing(r)
	}
	return nil
}

// showPlan shows the changes to apply, flagged files first.
func (a changeVerbs) showPlan(plan api.Applied) {
	listChanges(a.Stderr, flaggedFirst(plan.Applied))
	if len(plan.Skipped) > 0 {
		fmt.Fprintln(a.Stderr, "stays inside:")
		listChanges(a.Stderr, plan.Skipped)
	}
}

func flaggedFirst(list []api.Change) []api.Change {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(x, y api.Change) int {
		return cmp.Compare(min(len(y.Flags), 1), min(len(x.Flags), 1))
	})
	return out
}

// printApplied prints the applied and the omitted changes. A conflict has an exit code of its own,
// because part of the request was not done.
func (a changeVerbs) printApplied(done api.Applied) error {
	conflicts := 0
	for _, ch := range done.Skipped {
		if ch.Conflict != "" {
			conflicts++
		}
	}
	if a.json {
		if err := a.object(done); err != nil {
			return err
		}
	} else {
		a.reportApplied(done)
	}
	if conflicts > 0 && !done.DryRun {
		return exitCode(codeConflict)
	}
	return nil
}

func (a changeVerbs) reportApplied(done api.Applied) {
	if a.quiet {
		for _, ch := range done.Applied {
			fmt.Fprintln(a.Stdout, inert(ch.Path))
		}
		return
	}
	listChanges(a.Stdout, flaggedFirst(done.Applied))
	if len(done.Skipped) > 0 {
		a.note("not applied: %s", fileCount(len(done.Skipped)))
		listChanges(a.Stderr, done.Skipped)
		a.note("%s", adviceOn(done.Skipped))
	}
	switch {
	case len(done.Applied) == 0:
		a.note("nothing is applied")
	case done.DryRun && done.Effect == string(egress.Ask):
		a.note("%s would be applied; %s needs an approval", fileCount(len(done.Applied)), done.Rule)
	case done.DryRun && done.Effect == string(egress.Deny):
		a.note("nothing is applied: %s denies it", done.Rule)
	case done.DryRun:
		a.note("%s would be applied", fileCount(len(done.Applied)))
	default:
		a.note("%s applied", fileCount(len(done.Applied)))
	}
	masked := 0
	for _, ch := range done.Applied {
		if slices.Contains(ch.Flags, "masked") {
			masked++
		}
	}
	a.reportMasked(masked)
}

// reportMasked warns that some written files differ from the sandbox's, because their secrets were
// redacted.
func (a changeVerbs) reportMasked(files int) {
	switch {
	case files == 1:
		a.note("1 file contains a secret: it was replaced with asterisks")
	case files > 1:
		a.note("%d files contain secrets: they were replaced with asterisks", files)
	}
}

// adviceOn returns advice on how to apply the omitted changes.
func adviceOn(list []api.Change) string {
	conflict, flagged, secret := false, false, false
	for _, ch := range list {
		conflict = conflict || ch.Conflict != ""
		secret = secret || ch.Conflict == "secret_outside"
		flagged = flagged || slices.Contains(ch.Flags, "protected") || slices.Contains(ch.Flags, "runs_by_itself")
	}
	switch {
	case secret:
		return "the files on the host contain the secret too: --overwrite replaces it with asterisks, --protected includes protected files"
	case conflict && flagged:
		return "review them with crannog diff; --protected includes protected files, --overwrite replaces files that were changed here"
	case conflict:
		return "review them with crannog diff; --overwrite replaces files that were changed here"
	case flagged:
		return "review them with crannog diff; --protected includes them"
	}
	return "docs/how-to/take-changes-out.md lists files that are never applied"
}

// fileCount returns a number of files as text.
func fileCount(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

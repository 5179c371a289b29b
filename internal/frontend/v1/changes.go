package v1

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// Changes shows and exports the changes of sandboxes. A reference may also be the ID of an ended
// sandbox whose changes were retained.
type Changes interface {
	// Changes compares files. The text shown to the caller is written to the audit log.
	Changes(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ChangesRequest) (sandbox.ChangeSet, error)
	// Apply writes changes into the sandbox's host directory: all permitted changes, or none. Only
	// local callers may do so. If the policy requires an approval, it is Denied with the code
	// "export_pending" until exactly these changes have been approved.
	Apply(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ApplyRequest) (sandbox.Applied, error)
	// Export writes changes to a file for the caller, under the same rules.
	Export(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ExportRequest) (*sandbox.Exported, error)
	// KeepChanges retains the changes below the workspace after the sandbox's end. Files is zero if
	// there are none. Only local callers may do so.
	KeepChanges(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.KeptChanges, error)
	// ListChanges returns the retained changes, newest first.
	ListChanges(ctx context.Context, caller sandbox.Principal) ([]sandbox.KeptChanges, error)
	// DiscardChanges removes the retained changes of a sandbox.
	DiscardChanges(ctx context.Context, caller sandbox.Principal, id string) error
}

// changeHandlers serves change sets.
type changeHandlers struct {
	service Changes
	signing *provenance.Keys // nil signs nothing
	log     *slog.Logger
}

func (h *changeHandlers) register(r *registry) {
	if h.service == nil {
		return
	}
	register(r, op("sandboxes-changes", "GET", "/sandboxes/{id}/changes", "Get the change set of a sandbox"), h.changes)
	register(r, op("sandboxes-apply", "POST", "/sandboxes/{id}/apply", "Apply the changes of a sandbox to its workspace on the host"), h.apply)
	export := op("sandboxes-export", "GET", "/sandboxes/{id}/export", "Export the changes of a sandbox as a tar or a patch")
	export.Description = "The answer is application/x-tar or text/x-patch; with provenance multipart/mixed, first the DSSE envelope and then the file."
	register(r, export, h.export)
	register(r, op("sandboxes-changes-keep", "POST", "/sandboxes/{id}/changes/keep", "Retain the changes of a sandbox beyond its end"), h.keepChanges)
	register(r, empty(op("sandboxes-changes-discard", "DELETE", "/sandboxes/{id}/changes", "Discard the retained changes of an ended sandbox")), h.discardChanges)
	h.registerKey(r)
	register(r, op("changes-list", "GET", "/changes", "List retained changes of ended sandboxes"), h.listChanges)
}

// Selection selects changes in a query.
type Selection struct {
	Since string   `query:"since" maxLength:"256" doc:"start, or a snapshot by ID or name; start if absent."`
	Dir   string   `query:"dir" maxLength:"4096" doc:"The directory inside; /workspace if absent."`
	Paths []string `query:"path,explode" maxItems:"10000" doc:"Only these paths and everything below them; may be globs."`
}

type changesInput struct {
	Ref
	Selection
	Text bool `query:"text" doc:"With unified diffs."`
}

type changesOutput struct{ Body api.Changes }

func (s Selection) request(text bool) sandbox.ChangesRequest {
	return sandbox.ChangesRequest{Since: s.Since, Dir: s.Dir, Paths: s.Paths, Text: text}
}

func (h *changeHandlers) changes(ctx context.Context, caller sandbox.Principal, in *changesInput) (*changesOutput, error) {
	set, err := h.service.Changes(ctx, caller, in.ID, in.request(in.Text))
	if err != nil {
		return nil, err
	}
	return &changesOutput{api.Changes{
		Sandbox: set.Sandbox, Since: set.Since, Dir: set.Dir, TakenAt: set.TakenAt, Files: set.Files, Added: set.Added, Removed: set.Removed,
		Changes: toChanges(set.Changes), Digest: set.Digest, Truncated: set.Truncated, Retained: set.Retained, Kept: set.Retained,
	}}, nil
}

type applyInput struct {
	Ref
	Body api.Apply
}

type applyOutput struct{ Body api.Applied }

func (h *changeHandlers) apply(ctx context.Context, caller sandbox.Principal, in *applyInput) (*applyOutput, error) {
	b := in.Body
	done, err := h.service.Apply(ctx, caller, in.ID, sandbox.ApplyRequest{
		Paths: b.Paths, Digest: b.Digest, Protected: b.Protected, Overwrite: b.Overwrite, DryRun: b.DryRun,
		Provenance: b.Provenance,
	})
	if err != nil {
		return nil, err
	}
	return &applyOutput{api.Applied{
		Applied: toChanges(done.Applied), Skipped: toChanges(done.Skipped), Digest: done.Digest, Approval: done.Approval, DryRun: done.DryRun,
		Effect: string(done.Decision.Effect), Rule: done.Decision.Rule,
		Provenance: done.Provenance,
	}}, nil
}

type exportInput struct {
	Ref
	Selection
	Format    string `query:"format" enum:"tar,patch" required:"true"`
	Protected bool   `query:"protected" doc:"Include protected files and files that tools run by themselves."`
	Digest    string `query:"digest" maxLength:"128" doc:"The digest that the changes must have."`
	// Provenance adds a signed statement, which changes the form of the answer.
	Provenance bool `query:"provenance" doc:"Sign the file: the answer is multipart/mixed, first the DSSE envelope and then the file."`
}

type exportOutput struct {
	ContentType   string `header:"Content-Type"`
	ContentLength string `header:"Content-Length"`
	Digest        string `header:"Crannog-Digest"`
	Masked        string `header:"Crannog-Masked" doc:"The number of files in which values of secrets were redacted; absent if none."`
	Body          func(huma.Context)
}

func (h *changeHandlers) export(ctx context.Context, caller sandbox.Principal, in *exportInput) (*exportOutput, error) {
	out, err := h.service.Export(ctx, caller, in.ID, sandbox.ExportRequest{
		ChangesRequest: in.request(true), Format: in.Format, Protected: in.Protected, Digest: in.Digest, Provenance: in.Provenance,
	})
	if err != nil {
		return nil, err
	}
	kind := "application/x-tar"
	if in.Format == "patch" {
		kind = "text/x-patch"
	}
	masked := ""
	if out.Masked > 0 {
		masked = strconv.Itoa(out.Masked)
	}
	if in.Provenance {
		return h.signedExport(out, kind, masked)
	}
	return &exportOutput{kind, strconv.FormatInt(out.Size, 10), out.Digest, masked, func(c huma.Context) {
		defer out.Close()
		c.SetStatus(http.StatusOK)
		if _, err := io.Copy(c.BodyWriter(), out); err != nil {
			// The client sees by the length that the file is incomplete.
			h.log.Debug("export not sent", "err", err)
		}
	}}, nil
}

type keptOutput struct{ Body api.RetainedChanges }

func (h *changeHandlers) keepChanges(ctx context.Context, caller sandbox.Principal, in *Ref) (*keptOutput, error) {
	kept, err := h.service.KeepChanges(ctx, caller, in.ID)
	if err != nil {
		return nil, err
	}
	return &keptOutput{toKept(kept)}, nil
}

func (h *changeHandlers) discardChanges(ctx context.Context, caller sandbox.Principal, in *Ref) (*struct{}, error) {
	return nil, h.service.DiscardChanges(ctx, caller, in.ID)
}

type keptListOutput struct{ Body api.RetainedList }

func (h *changeHandlers) listChanges(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*keptListOutput, error) {
	list, err := h.service.ListChanges(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := &keptListOutput{api.RetainedList{Changes: make([]api.RetainedChanges, 0, len(list))}}
	for _, k := range list {
		out.Body.Changes = append(out.Body.Changes, toKept(k))
	}
	return out, nil
}

func toKept(k sandbox.KeptChanges) api.RetainedChanges {
	return api.RetainedChanges{
		ID: k.ID, Workspace: k.Workspace, TakenAt: k.TakenAt, ExpiresAt: k.ExpiresAt, Files: k.Files, Added: k.Added, Removed: k.Removed,
	}
}

func toChanges(list []changeset.Change) []api.Change {
	out := make([]api.Change, 0, len(list))
	for _, c := range list {
		out = append(out, toChange(c))
	}
	return out
}

// toChange converts one change. Invalid UTF-8 in names is replaced, and such names cannot be used
// in requests.
func toChange(c changeset.Change) api.Change {
	out := api.Change{
		Path: c.Path, Op: string(c.Op), Binary: c.Binary, Added: c.Added, Removed: c.Removed, Text: c.Text, Conflict: string(c.Conflict), Because: c.Because,
	}
	for _, f := range c.Flags {
		out.Flags = append(out.Flags, string(f))
	}
	if c.Conflict != "" {
		out.Flags = append(out.Flags, "conflict")
	}
	e := c.New
	if e == nil {
		e = c.Old
	}
	if e == nil {
		return out
	}
	out.Type = string(e.Type)
	if c.New != nil {
		out.Mode = strconv.FormatUint(uint64(e.Mode), 8)
		out.Size, out.Sum, out.Target = e.Size, e.Sum, e.Target
	}
	return out
}

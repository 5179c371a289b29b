package v1

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

func (s *server) changeRoutes(a huma.API) {
	if s.Changing == nil {
		return
	}
	register(s, a, op("sandboxes-changes", "GET", "/sandboxes/{id}/changes", "What is not as it was in it"), s.changes)
	register(s, a, op("sandboxes-apply", "POST", "/sandboxes/{id}/apply", "Bring its changes into the host directory that it shows"), s.apply)
	export := op("sandboxes-export", "GET", "/sandboxes/{id}/export", "Its changes as a tar or a patch")
	export.Description = "The answer is application/x-tar or text/x-patch; with provenance multipart/mixed, first the DSSE envelope and then the file."
	register(s, a, export, s.export)
	register(s, a, op("sandboxes-changes-keep", "POST", "/sandboxes/{id}/changes/keep", "Keep its changes beyond its end"), s.keepChanges)
	register(s, a, empty(op("sandboxes-changes-discard", "DELETE", "/sandboxes/{id}/changes", "Drop the changes that were kept of an ended sandbox")), s.discardChanges)
	s.provenanceRoutes(a)
	register(s, a, op("changes-list", "GET", "/changes", "The changes that were kept of ended sandboxes"), s.listChanges)
}

// Selection is how a query says which changes are meant.
type Selection struct {
	Since string   `query:"since" maxLength:"256" doc:"start, or a snapshot by ID or name; start if absent."`
	Dir   string   `query:"dir" maxLength:"4096" doc:"The directory inside; /workspace if absent."`
	Paths []string `query:"path,explode" maxItems:"10000" doc:"Only these, and what lies below them; globs may be used."`
}

type changesInput struct {
	Ref
	Selection
	Text bool `query:"text" doc:"With unified diffs."`
}

type changesOutput struct{ Body api.Changes }

func (w Selection) request(text bool) sandbox.ChangesRequest {
	return sandbox.ChangesRequest{Since: w.Since, Dir: w.Dir, Paths: w.Paths, Text: text}
}

func (s *server) changes(ctx context.Context, who sandbox.Principal, in *changesInput) (*changesOutput, error) {
	set, err := s.Changing.Changes(ctx, who, in.ID, in.request(in.Text))
	if err != nil {
		return nil, err
	}
	return &changesOutput{api.Changes{
		Sandbox: set.Sandbox, Since: set.Since, Dir: set.Dir, TakenAt: set.TakenAt, Files: set.Files, Added: set.Added, Removed: set.Removed,
		Changes: toChanges(set.Changes), Digest: set.Digest, Truncated: set.Truncated, Retained: set.Kept, Kept: set.Kept,
	}}, nil
}

type applyInput struct {
	Ref
	Body api.Apply
}

type applyOutput struct{ Body api.Applied }

func (s *server) apply(ctx context.Context, who sandbox.Principal, in *applyInput) (*applyOutput, error) {
	b := in.Body
	done, err := s.Changing.Apply(ctx, who, in.ID, sandbox.ApplyRequest{
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
	Protected bool   `query:"protected" doc:"Also files that are protected or run by themselves."`
	Digest    string `query:"digest" maxLength:"128" doc:"That of the changes as they must be."`
	// Provenance changes the form of the answer.
	Provenance bool `query:"provenance" doc:"Sign for the file: the answer is multipart/mixed then, first the DSSE envelope and then the file."`
}

type exportOutput struct {
	ContentType   string `header:"Content-Type"`
	ContentLength string `header:"Content-Length"`
	Digest        string `header:"Crannog-Digest"`
	Masked        string `header:"Crannog-Masked" doc:"In how many files values of sealed secrets are masked; absent if in none."`
	Body          func(huma.Context)
}

func (s *server) export(ctx context.Context, who sandbox.Principal, in *exportInput) (*exportOutput, error) {
	out, err := s.Changing.Export(ctx, who, in.ID, sandbox.ExportRequest{
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
		return s.signedExport(out, kind, masked)
	}
	return &exportOutput{kind, strconv.FormatInt(out.Size, 10), out.Digest, masked, func(c huma.Context) {
		defer out.Close()
		c.SetStatus(http.StatusOK)
		if _, err := io.Copy(c.BodyWriter(), out); err != nil {
			// The client sees by the length that it has not all.
			s.Log.Debug("export not sent", "err", err)
		}
	}}, nil
}

type keptOutput struct{ Body api.RetainedChanges }

func (s *server) keepChanges(ctx context.Context, who sandbox.Principal, in *Ref) (*keptOutput, error) {
	kept, err := s.Changing.KeepChanges(ctx, who, in.ID)
	if err != nil {
		return nil, err
	}
	return &keptOutput{toKept(kept)}, nil
}

func (s *server) discardChanges(ctx context.Context, who sandbox.Principal, in *Ref) (*struct{}, error) {
	return nil, s.Changing.DiscardChanges(ctx, who, in.ID)
}

type keptListOutput struct{ Body api.RetainedList }

func (s *server) listChanges(ctx context.Context, who sandbox.Principal, _ *struct{}) (*keptListOutput, error) {
	list, err := s.Changing.ListChanges(ctx, who)
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

// toChange is one change on the wire. Names that are no UTF-8 are shown with
// replacement characters there, and are not to be asked for by name.
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

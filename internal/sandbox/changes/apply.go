package changes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// Apply writes changes of the workspace into the host directory of which the workspace is a copy.
func (s *Service) Apply(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ApplyRequest) (sandbox.Applied, error) {
	if req.DryRun {
		return s.apply(ctx, caller, ref, req) // only a comparison
	}
	ctx, action := s.audit.Begin(ctx, caller, "apply", ref)
	out, err := s.apply(ctx, caller, ref, req)
	return out, action.Finish(ctx, err)
}

func (s *Service) apply(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ApplyRequest) (_ sandbox.Applied, err error) {
	if err := caller.Check(); err != nil {
		return sandbox.Applied{}, err
	}
	if !caller.Local {
		// An API key gives access to sandboxes only. The directory belongs to the user of the
		// server's machine.
		return sandbox.Applied{}, fault.New(fault.Denied, "apply_not_local", "only callers on the server's own machine apply changes to its directories").
			WithHint("export them instead: crannog export")
	}
	o, err := s.open(ctx, caller, ref, sandbox.ChangesRequest{})
	if err != nil {
		return sandbox.Applied{}, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if o.base.Outside == nil {
		return sandbox.Applied{}, fault.New(fault.Invalid, "workspace_missing", "the sandbox has no host directory, so changes cannot be applied").
			WithHint("crannog export writes them to a file")
	}
	set, err := o.compare(ctx, true, false)
	if err != nil {
		return sandbox.Applied{}, err
	}
	c, err := o.choose(set.Changes, req.Paths, req.Protected, req.Overwrite)
	if err != nil {
		return sandbox.Applied{}, err
	}
	out := sandbox.Applied{Applied: o.shown(c.chosen), Skipped: o.shown(c.left), Digest: c.digest, DryRun: req.DryRun, Decision: c.decision}
	if req.DryRun || len(c.chosen) == 0 {
		return out, nil
	}
	if req.Provenance {
		if err := s.checkSignable(c.chosen, true); err != nil {
			return sandbox.Applied{}, err
		}
	}
	if out.Approval, err = s.decideExport(ctx, o, c, o.record.Workspace, req.Digest); err != nil {
		return sandbox.Applied{}, err
	}
	entries, err := s.applyShared(ctx, o, c.chosen, req.Overwrite, func(applied []changeset.Change) error {
		// This precedes the writing of the files, so that nothing leaves the sandbox without an
		// entry and a signature.
		c.chosen, out.Applied = applied, applied
		err := s.recordExport(ctx, caller, o, c, o.record.Workspace, out.Approval)
		if err == nil && req.Provenance {
			out.Provenance, err = s.attest(ctx, caller, o, c, release{out: outApply, approval: out.Approval})
		}
		return err
	})
	if err != nil {
		if len(entries) > 0 && !o.isRetained {
			// The files of the workspace were written, but those of the repository were not.
			err = errors.Join(err, s.manifests.Amend(o.record.ID, entries))
		}
		return sandbox.Applied{}, err
	}
	s.log.Info("changes applied", "sandbox", o.record.ID, "files", len(c.chosen))
	if o.isRetained {
		if len(c.chosen) == len(set.Changes) {
			return out, s.dropRetained(o.record.ID)
		}
	} else {
		s.source.Log(ctx, o.record.ID, "changes applied")
	}
	// The files are written. If the new manifest cannot be saved, the next comparison attributes
	// the changes to another process.
	if err := s.manifests.Amend(o.record.ID, entries); err != nil {
		s.log.Warn("applied changes not recorded", "sandbox", o.record.ID, "err", err)
	}
	return out, nil
}

// Export writes changes to an unnamed file.
func (s *Service) Export(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ExportRequest) (*sandbox.Exported, error) {
	ctx, action := s.audit.Begin(ctx, caller, "export", ref)
	out, err := s.export(ctx, caller, ref, req)
	return out, action.Finish(ctx, err)
}

func (s *Service) export(ctx context.Context, caller sandbox.Principal, ref string, req sandbox.ExportRequest) (_ *sandbox.Exported, err error) {
	if req.Format != formatTar && req.Format != formatPatch {
		return nil, fault.New(fault.Invalid, "format_invalid", "the format is tar or patch")
	}
	if s.retained == nil {
		return nil, fault.New(fault.Unsupported, "export_unavailable", "this server does not support exports")
	}
	o, err := s.open(ctx, caller, ref, req.ChangesRequest)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	set, err := o.compare(ctx, true, false)
	if err != nil {
		return nil, err
	}
	// Changes to the host's directory since the start do not matter, because an export writes
	// nothing there.
	c, err := o.choose(set.Changes, req.Paths, req.Protected, true)
	if err != nil {
		return nil, err
	}
	if len(c.chosen) == 0 {
		return nil, fault.New(fault.NotFound, "nothing_to_export", "there are no changes that may be exported")
	}
	if c.decision.Effect == egress.Deny {
		return nil, exportDenied(c.decision)
	}
	if req.Provenance {
		if err := s.checkSignable(c.chosen, false); err != nil {
			return nil, err
		}
	}
	// First check whether the export can be written, so that a failure does not use up a grant. The
	// file is not shared before the approval.
	out, err := s.write(ctx, o, &c, req.Format)
	if err != nil {
		return nil, err
	}
	approval, err := s.decideExport(ctx, o, c, req.Format, req.Digest)
	if err == nil {
		err = s.recordExport(ctx, caller, o, c, req.Format, approval)
	}
	if err == nil && req.Provenance {
		out.Provenance, err = s.attest(ctx, caller, o, c, release{out: req.Format, artifact: out.SHA256, approval: approval})
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

const (
	formatTar   = "tar"
	formatPatch = "patch"
)

// write stages the choice and writes the file from it. Afterwards the choice contains the checksums
// of the written content.
func (s *Service) write(ctx context.Context, o *comparison, c *choice, format string) (_ *sandbox.Exported, err error) {
	draft, err := s.retained.Begin(o.record.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, draft.Abort()) }()
	list := c.chosen
	if format == formatPatch {
		// A patch contains directories only through the files in them.
		list = slices.DeleteFunc(slices.Clone(list), onlyDirectory)
	}
	list, err = changeset.Stage(ctx, o.source, o.dir, list, draft.Files, changeset.Bounds{})
	if err != nil {
		return nil, err
	}
	c.chosen = staged(c.chosen, list)
	const name = "export"
	f, err := draft.Files.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	// The file is unlinked, so its content is freed when the last descriptor is closed.
	if err := draft.Files.Remove(name); err != nil {
		return nil, err
	}
	sum := sha256.New()
	w := io.MultiWriter(f, sum)
	if format == formatTar {
		err = changeset.WriteTar(w, draft.Files, list)
	} else {
		err = s.patch(ctx, w, draft.Files, o, list)
	}
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, err
	}
	return &sandbox.Exported{
		ReadCloser: f, Size: size, Digest: c.digest, Files: len(list), Masked: changeset.CountMasked(list), SHA256: hex.EncodeToString(sum.Sum(nil)),
	}, nil
}

// staged returns the changes as they were staged, under their own paths.
func staged(all, some []changeset.Change) []changeset.Change {
	byPath := make(map[string]changeset.Change, len(some))
	for _, c := range some {
		byPath[c.Path] = c
	}
	out := slices.Clone(all)
	for i := range out {
		if c, ok := byPath[out[i].Path]; ok {
			out[i] = c
		}
	}
	return out
}

// onlyDirectory reports whether a change is about a directory.
func onlyDirectory(c changeset.Change) bool {
	e := c.New
	if e == nil {
		e = c.Old
	}
	return e.Type == changeset.Dir
}

// patch writes a patch. It returns an error if the patch cannot represent all changes.
func (s *Service) patch(ctx context.Context, w io.Writer, staged *os.Root, o *comparison, list []changeset.Change) error {
	omitted, err := changeset.WritePatch(ctx, w, staged, o.base, list, o.source.Redactor, changeset.Bounds{})
	if err != nil || len(omitted) == 0 {
		return err
	}
	return fault.Newf(fault.Conflict, "patch_incomplete", "%d changes cannot be in a patch, such as that of %.200q: files that are binary or very large, that contained a secret before, or whose earlier content is not known", len(omitted), omitted[0].Path).
		WithHint("export a tar, or name the other paths")
}

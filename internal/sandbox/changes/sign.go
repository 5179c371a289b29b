package changes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/sandbox"
)

// outApply is the output format of an apply.
const outApply = "apply"

// release describes an export for its signed statement.
type release struct {
	out      string // tar, patch or apply
	artifact string // SHA-256 of the written file, or ""
	approval string
}

// checkSignable returns an error for a request that could not be signed, so that it does not use up
// an approval.
func (s *Service) checkSignable(chosen []changeset.Change, files bool) error {
	if s.signing == nil {
		return fault.New(fault.Unsupported, "provenance_unavailable", "this server does not sign statements")
	}
	n := len(filesOf(chosen))
	if files && n == 0 {
		return provenance.Empty()
	}
	return provenance.Fits(n)
}

// filesOf returns the regular files of an export, with the checksums of the written content.
func filesOf(chosen []changeset.Change) []provenance.File {
	var out []provenance.File
	for _, c := range chosen {
		if c.New != nil && c.New.Type == changeset.Regular {
			out = append(out, provenance.File{Path: c.Path, SHA256: c.New.Sum})
		}
	}
	return out
}

// attest signs a statement about an export. The signed tree head in the statement covers the audit
// entry of the export. An entry about the signature is durable before the caller gets the
// signature, so the audit log lists all signatures.
func (s *Service) attest(ctx context.Context, caller sandbox.Principal, o *comparison, c choice, out release) ([]byte, error) {
	treeHead, err := s.audit.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	r := o.record
	statement, err := provenance.Release{
		Artifact: out.artifact, Files: filesOf(c.chosen),
		Run: provenance.Run{ID: r.ID, StartedAt: r.StartedAt, EndedAt: time.Now(), Record: provenance.Checkpoint(treeHead), Version: s.version},
		External: provenance.External{
			Template: r.Template, Policy: o.policy.Digest(), Level: o.policy.Level(), Out: out.out, Dir: o.dir, Since: o.since,
		},
		Internal: provenance.Internal{
			Engine: r.Engine, Boundary: string(r.Boundary), Origin: r.Origin, Parent: r.Parent,
			Changes: c.digest, Removals: c.removals, Masked: changeset.CountMasked(c.chosen), Approval: out.approval,
		},
		TemplateID: r.TemplateID, Revision: r.Base.Revision, Commit: o.commit(),
	}.Statement()
	if err != nil {
		return nil, err
	}
	signer, err := s.signing.Signer()
	if err != nil {
		return nil, err
	}
	envelope, err := signer.Sign(statement)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(envelope)
	return envelope, s.audit.Append(ctx, audit.Draft{Kind: audit.ProvenanceSigned, Sandbox: r.ID, Actor: caller.Actor(), Data: payload.Provenance{
		Artifact: out.artifact, Subjects: len(statement.Subject), Envelope: hex.EncodeToString(sum[:]), Key: signer.Public.ID(),
		Digest: c.digest, Policy: o.policy.Digest(), Checkpoint: treeHead.Size,
	}})
}

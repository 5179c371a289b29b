package v1

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

type checkpointOutput struct{ Body api.Checkpoint }

// checkpoint has no access check, because a tree head reveals only the number of entries. The
// more callers store one, the harder it is to forge the history.
func (h *auditHandlers) checkpoint(ctx context.Context, _ sandbox.Principal, _ *struct{}) (*checkpointOutput, error) {
	c, err := h.auditLog.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return &checkpointOutput{toCheckpoint(c)}, nil
}

type publicKeyOutput struct{ Body api.RecordKey }

func (h *auditHandlers) publicKey(_ context.Context, caller sandbox.Principal, _ *struct{}) (*publicKeyOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	return &publicKeyOutput{api.RecordKey{Key: h.auditLog.Key()}}, nil
}

type verifyLogInput struct{ Body api.VerifyRecord }

type verifyLogOutput struct{ Body api.Verification }

func (h *auditHandlers) verifyLog(ctx context.Context, caller sandbox.Principal, in *verifyLogInput) (*verifyLogOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	v, err := h.auditLog.Verify(ctx, in.Body.Against...)
	if err != nil {
		return nil, err
	}
	return &verifyLogOutput{api.Verification{
		OK: v.OK, Entries: v.Entries, First: v.First, Seq: v.Seq, Fault: string(v.Flaw), Text: v.Text,
		Checkpoints: v.Checkpoints, Uncovered: v.Uncovered,
	}}, nil
}

type proveEntryInput struct {
	Seq int64 `path:"seq" minimum:"0" doc:"Number of the entry."`
}

type proveEntryOutput struct{ Body api.Proof }

func (h *auditHandlers) proveEntry(ctx context.Context, caller sandbox.Principal, in *proveEntryInput) (*proveEntryOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	p, err := h.auditLog.Prove(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	return &proveEntryOutput{api.Proof{Entry: p.Entry, Seq: p.Seq, Hashes: p.Hashes, Checkpoint: toCheckpoint(p.Checkpoint), Key: p.Key}}, nil
}

type exportEntriesInput struct{ EntryFilter }

// exportEntries streams the entries. An interrupted stream lacks its last line, which verification
// detects.
func (h *auditHandlers) exportEntries(ctx context.Context, caller sandbox.Principal, in *exportEntriesInput) (*entriesOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	f, err := h.filterOf(ctx, caller, in.EntryFilter)
	if err != nil {
		return nil, err
	}
	return &entriesOutput{"application/x-ndjson", func(c huma.Context) {
		c.SetHeader("Content-Type", "application/x-ndjson")
		c.SetStatus(http.StatusOK)
		if err := h.auditLog.Export(c.Context(), c.BodyWriter(), f); err != nil && c.Context().Err() == nil {
			h.log.Warn("export of the audit log is incomplete", "err", err)
		}
	}}, nil
}

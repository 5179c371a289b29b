package v1

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

type checkpointOutput struct{ Body api.Checkpoint }

// recordCheckpoint has no access check, because a tree head reveals only the number of entries. The
// more callers store one, the harder it is to forge the history.
func (h *recordHandlers) recordCheckpoint(ctx context.Context, _ sandbox.Principal, _ *struct{}) (*checkpointOutput, error) {
	c, err := h.record.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	return &checkpointOutput{toCheckpoint(c)}, nil
}

type recordKeyOutput struct{ Body api.RecordKey }

func (h *recordHandlers) recordKey(_ context.Context, caller sandbox.Principal, _ *struct{}) (*recordKeyOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	return &recordKeyOutput{api.RecordKey{Key: h.record.Key()}}, nil
}

type verifyRecordInput struct{ Body api.VerifyRecord }

type verifyRecordOutput struct{ Body api.Verification }

func (h *recordHandlers) verifyRecord(ctx context.Context, caller sandbox.Principal, in *verifyRecordInput) (*verifyRecordOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	v, err := h.record.Verify(ctx, in.Body.Against...)
	if err != nil {
		return nil, err
	}
	return &verifyRecordOutput{api.Verification{
		OK: v.OK, Entries: v.Entries, First: v.First, Seq: v.Seq, Fault: string(v.Flaw), Text: v.Text,
		Checkpoints: v.Checkpoints, Uncovered: v.Uncovered,
	}}, nil
}

type proveEntryInput struct {
	Seq int64 `path:"seq" minimum:"0" doc:"Number of the entry."`
}

type proveEntryOutput struct{ Body api.Proof }

func (h *recordHandlers) proveEntry(ctx context.Context, caller sandbox.Principal, in *proveEntryInput) (*proveEntryOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	p, err := h.record.Prove(ctx, in.Seq)
	if err != nil {
		return nil, err
	}
	return &proveEntryOutput{api.Proof{Entry: p.Entry, Seq: p.Seq, Hashes: p.Hashes, Checkpoint: toCheckpoint(p.Checkpoint), Key: p.Key}}, nil
}

type exportRecordInput struct{ RecordFilter }

// exportRecord streams the entries. An interrupted stream lacks its last line, which verification
// detects.
func (h *recordHandlers) exportRecord(ctx context.Context, caller sandbox.Principal, in *exportRecordInput) (*recordOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	f, err := h.filterOf(ctx, caller, in.RecordFilter)
	if err != nil {
		return nil, err
	}
	return &recordOutput{"application/x-ndjson", func(c huma.Context) {
		c.SetHeader("Content-Type", "application/x-ndjson")
		c.SetStatus(http.StatusOK)
		if err := h.record.Export(c.Context(), c.BodyWriter(), f); err != nil && c.Context().Err() == nil {
			h.log.Warn("export of the audit log is incomplete", "err", err)
		}
	}}, nil
}

package audited

import (
	"context"

	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/recordings"
)

// Recordings is a recordings.Service that writes audit entries.
type Recordings struct {
	*recordings.Service
	audited *Service
}

// Recordings manages recordings of the output of commands.
func (s *Service) Recordings() *Recordings { return &Recordings{s.Service.Recordings(), s} }

// KeepRecordings keeps a sandbox's recordings beyond its end.
func (r *Recordings) KeepRecordings(ctx context.Context, caller sandbox.Principal, ref string) (sandbox.KeptRecordings, error) {
	ctx, a := r.audited.begin(ctx, caller, "recordings.keep", ref)
	out, err := r.Service.KeepRecordings(ctx, caller, ref)
	if err == nil && out.ID == "" {
		return out, nil // nothing was done
	}
	return out, a.Commit(ctx, err)
}

// DiscardRecordings removes retained recordings.
func (r *Recordings) DiscardRecordings(ctx context.Context, caller sandbox.Principal, id string) error {
	ctx, a := r.audited.begin(ctx, caller, "recordings.discard", id)
	return a.Finish(ctx, r.Service.DiscardRecordings(ctx, caller, id))
}

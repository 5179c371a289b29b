package lifecycle

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/packages/lockfile"
	"github.com/crannog/crannog/internal/sandbox"
)

// readLockfiles reads the lockfiles of a new sandbox's workspace, if its policy requires them. It
// reads the host's files before anything runs. A sandbox that starts from a snapshot keeps the set of
// the snapshot's sandbox, like a copy.
func readLockfiles(ctx context.Context, r *sandbox.Row, p *policy.Policy) error {
	if !p.LockfileOnly() || r.Base.Locked != "" || r.Workspace == "" {
		return nil
	}
	set, err := lockfile.Collect(ctx, r.Workspace)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return canceled(cause)
	}
	if err != nil {
		return err
	}
	digest, _, err := set.Encode()
	if err != nil {
		return err
	}
	r.Base.Locked, r.Locked = digest, set
	r.Base.Notes = append(slices.Clone(r.Base.Notes), set.Notes()...)
	return nil
}

package savedstate

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// RequestDeduplication requests that common data of images is deduplicated.
func (s *Service) RequestDeduplication() {
	select {
	case s.newImages <- struct{}{}:
	default:
	}
}

// The first maintenance of saved states comes soon after the start, but not while a caller may be
// waiting for its first sandbox. Then it is repeated at intervals.
const (
	firstSweep = 3 * time.Second
	sweepEvery = time.Hour
)

// deduplicateAfter is how long a saved state stays unchanged before it is deduplicated.
const deduplicateAfter = 2 * time.Second

// Run maintains images until the context ends. Sweep reconciles them with the rows that name them.
func (s *Service) Run(ctx context.Context, sweep func(context.Context) (int64, error)) {
	if s.deps.Images == nil {
		return
	}
	timer := time.NewTimer(firstSweep)
	defer timer.Stop()
	var quiet <-chan time.Time
	for {
		what := "deduplicating"
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.newImages:
			// A client may resume a sandbox right after saving it, and deduplication reads and
			// writes all of its image.
			if quiet == nil {
				quiet = time.After(deduplicateAfter)
			}
		case <-quiet:
			quiet = nil
			_, err = s.deps.Images.Deduplicate(ctx)
			err = errors.Join(err, s.files.sync())
		case <-timer.C:
			timer.Reset(sweepEvery)
			what = "reconciling"
			_, err = sweep(ctx)
			s.RequestDeduplication()
		}
		if err != nil && ctx.Err() == nil {
			s.deps.Log.Warn("maintenance of saved states failed", "while", what, "err", err)
		}
	}
}

// persistTimeout limits how long Close waits for the disk. It is shorter than the limit of service
// managers (systemd 90 s); the next process does the rest.
const persistTimeout = 30 * time.Second

// Persist makes saved states durable before the host may shut down. The end of this process may be
// part of a shutdown, and then no other process can do it in time.
func (s *Service) Persist(ctx context.Context) {
	if s.deps.Images == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	// Callers were told that the state is saved, and the next process may still make it durable, so
	// this does not fail.
	if err := errors.Join(s.deps.Images.Persist(ctx), s.files.sync()); err != nil {
		s.deps.Log.Error("saved states are not on the disk yet: a reboot may lose them", "err", err)
	}
}

// Deduplicate deduplicates common data of images, and returns the number of freed bytes.
func (s *Service) Deduplicate(ctx context.Context) (int64, error) {
	if s.deps.Images == nil {
		return 0, nil
	}
	return s.deps.Images.Deduplicate(ctx)
}

// Missing returns the paused sandboxes and the snapshots whose images are missing. It omits those
// of an engine that is not registered, which may be by mistake.
func (s *Service) Missing(ctx context.Context) (paused []sandbox.Row, snapshots []sandbox.Stored, err error) {
	if s.deps.Images == nil {
		return nil, nil, nil
	}
	// Rows are read first: an image is written before the row that needs it, and removed after it.
	// So if the row is unchanged afterwards, the image is really missing.
	rows, err := s.deps.Rows.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Paused}}})
	if err != nil {
		return nil, nil, err
	}
	stored, err := s.deps.Rows.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, Templates: true})
	if err != nil {
		return nil, nil, err
	}
	sizes, err := s.deps.Images.Sizes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		if _, exists := sizes[r.Saved.Image]; !exists && s.deps.Engines.Has(r.Engine) {
			paused = append(paused, r)
		}
	}
	for _, n := range stored {
		if _, exists := sizes[n.ID]; !exists && s.deps.Engines.Has(n.Engine) {
			snapshots = append(snapshots, n)
		}
	}
	return paused, snapshots, nil
}

// DropUnreferenced removes images without a row, and unreferenced copies of the host's files. It
// returns the number of freed bytes.
func (s *Service) DropUnreferenced(ctx context.Context) (int64, error) {
	freed, err := s.dropImages(ctx)
	copies, pruneErr := s.files.prune(ctx)
	if freed += copies; freed > 0 {
		s.deps.Log.Info("unreferenced data removed", "bytes", freed)
	}
	return freed, errors.Join(err, pruneErr)
}

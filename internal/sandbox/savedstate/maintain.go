package savedstate

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// Settle asks for what images have in common to be stored once.
func (s *Service) Settle() {
	select {
	case s.unsettled <- struct{}{}:
	default:
	}
}

// Saved states are looked through soon after the start, but not while a caller
// may be waiting for its only sandbox, and then now and then.
const (
	sweepFirst = 3 * time.Second
	sweepEvery = time.Hour
)

// settleAfter is how long what was saved rests before it is settled.
const settleAfter = 2 * time.Second

// Run looks after images until the context ends. Sweep reconciles them with the rows that
// name them.
func (s *Service) Run(ctx context.Context, sweep func(context.Context) (int64, error)) {
	if s.deps.Images == nil {
		return
	}
	timer := time.NewTimer(sweepFirst)
	defer timer.Stop()
	var quiet <-chan time.Time
	for {
		what := "settling"
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.unsettled:
			// A client may resume a sandbox right after saving it, and settling reads
			// and writes all of its image.
			if quiet == nil {
				quiet = time.After(settleAfter)
			}
		case <-quiet:
			quiet = nil
			_, err = s.deps.Images.Settle(ctx)
			err = errors.Join(err, s.files.sync())
		case <-timer.C:
			timer.Reset(sweepEvery)
			what = "looking through"
			_, err = sweep(ctx)
			s.Settle()
		}
		if err != nil && ctx.Err() == nil {
			s.deps.Log.Warn("images not looked after", "while", what, "err", err)
		}
	}
}

// persistTimeout bounds how long Close waits for the disk. It is less than what
// service managers give (systemd 90 s), and what is left then waits for the
// next process.
const persistTimeout = 30 * time.Second

// Persist makes saved states durable before the host may go down. The end of
// this process may be the start of a shutdown, in which nothing else settles them in
// time.
func (s *Service) Persist(ctx context.Context) {
	if s.deps.Images == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	// Those who saved it were told that it is kept, and the next process may
	// still see to that: no reason for Close to fail.
	if err := errors.Join(s.deps.Images.Persist(ctx), s.files.sync()); err != nil {
		s.deps.Log.Error("saved states are not on the disk yet: a reboot before another process ends would lose them", "err", err)
	}
}

// SettleNow stores what images have in common once, and returns how many bytes that freed.
func (s *Service) SettleNow(ctx context.Context) (int64, error) {
	if s.deps.Images == nil {
		return 0, nil
	}
	return s.deps.Images.Settle(ctx)
}

// Missing returns the paused sandboxes and the snapshots whose images are gone. It leaves out
// those of an engine that is not registered, which may be so by mistake.
func (s *Service) Missing(ctx context.Context) (paused []sandbox.Row, snapshots []sandbox.Stored, err error) {
	if s.deps.Images == nil {
		return nil, nil, nil
	}
	// Rows first: an image is there before the row that needs it, and goes
	// after it, so what is missing is missing if the row is still the same.
	rows, err := s.deps.Rows.List(ctx, sandbox.Query{AllOwners: true, Filter: sandbox.Filter{States: []sandbox.State{sandbox.Paused}}})
	if err != nil {
		return nil, nil, err
	}
	kept, err := s.deps.Rows.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true})
	if err != nil {
		return nil, nil, err
	}
	sizes, err := s.deps.Images.Sizes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		if _, there := sizes[r.Saved.Image]; !there && s.deps.Engines.Has(r.Engine) {
			paused = append(paused, r)
		}
	}
	for _, n := range kept {
		if _, there := sizes[n.ID]; !there && s.deps.Engines.Has(n.Engine) {
			snapshots = append(snapshots, n)
		}
	}
	return paused, snapshots, nil
}

// DropUnreferenced drops images, and copies of the host's files, that no row refers to. It
// returns how many bytes that freed.
func (s *Service) DropUnreferenced(ctx context.Context) (int64, error) {
	freed, err := s.dropImages(ctx)
	copies, lost := s.files.prune(ctx)
	if freed += copies; freed > 0 {
		s.deps.Log.Info("data of no snapshot dropped", "bytes", freed)
	}
	return freed, errors.Join(err, lost)
}

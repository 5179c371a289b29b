package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/crannog/crannog/internal/sandbox"
)

// settleImages asks for what images have in common to be stored once.
func (s *Service) settleImages() {
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

// tidy looks after images in the background.
func (s *Service) tidy() {
	if s.images == nil {
		return
	}
	timer := time.NewTimer(sweepFirst)
	defer timer.Stop()
	var quiet <-chan time.Time
	for {
		what := "settling"
		var err error
		select {
		case <-s.ctx.Done():
			return
		case <-s.unsettled:
			// A client may resume a sandbox right after saving it, and settling reads
			// and writes all of its image.
			if quiet == nil {
				quiet = time.After(settleAfter)
			}
		case <-quiet:
			quiet = nil
			_, err = s.images.Settle(s.ctx)
			err = errors.Join(err, s.hostFiles.sync())
		case <-timer.C:
			timer.Reset(sweepEvery)
			what = "looking through"
			_, err = s.sweepImages(s.ctx)
			s.settleImages()
		}
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("images not looked after", "while", what, "err", err)
		}
	}
}

// persistTimeout bounds how long Close waits for the disk. It is less than what
// service managers give (systemd 90 s), and what is left then waits for the
// next process.
const persistTimeout = 30 * time.Second

// persistImages makes saved states durable before the host may go down. The end of
// this process may be the start of a shutdown, in which nothing else settles them in
// time.
func (s *Service) persistImages(ctx context.Context) {
	if s.images == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	// Those who saved it were told that it is kept, and the next process may
	// still see to that: no reason for Close to fail.
	if err := errors.Join(s.images.Persist(ctx), s.hostFiles.sync()); err != nil {
		s.log.Error("saved states are not on the disk yet: a reboot before another process ends would lose them", "err", err)
	}
}

// sweepImages reconciles images with the rows that name them, and drops snapshots
// that are older than the configured age. It returns how many unreferenced bytes it
// freed.
func (s *Service) sweepImages(ctx context.Context) (int64, error) {
	if s.images == nil {
		return 0, nil
	}
	errs := []error{s.lostImages(ctx)}
	if s.settings.SnapshotRetention > 0 {
		old, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, CreatedBefore: time.Now().Add(-s.settings.SnapshotRetention)})
		errs = append(errs, err)
		for _, n := range old {
			errs = append(errs, s.removeSnapshot(ctx, n))
		}
	}
	freed, err := s.dropImages(ctx)
	copies, lost := s.hostFiles.prune(ctx)
	freed, err = freed+copies, errors.Join(err, lost)
	if freed > 0 {
		s.log.Info("data of no snapshot dropped", "bytes", freed)
	}
	return freed, errors.Join(append(errs, err)...)
}

// Programs are the paths on this host that sandboxes and snapshots need, also
// those of which nothing runs.
func (s *Service) Programs(ctx context.Context) (map[string]bool, error) {
	need := map[string]bool{}
	rows, err := s.store.List(ctx, sandbox.Query{AllOwners: true})
	if err != nil {
		return nil, err
	}
	saved, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true})
	if err != nil {
		return nil, err
	}
	add := func(b sandbox.Base) {
		for _, bind := range b.Image.View().Binds {
			need[bind.Source] = true
		}
	}
	for _, r := range rows {
		add(r.Base)
	}
	for _, one := range saved {
		add(one.Base)
	}
	return need, nil
}

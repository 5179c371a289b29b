package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/ids"
)

// Limits of the quota of a volume.
const (
	MinBytes     = 16 << 20
	DefaultBytes = 1 << 30
	maxBytes     = 16 << 40
	minFiles     = 64
	maxFiles     = 1 << 30
)

// Request describes a new volume.
type Request struct {
	Name, Owner string
	Bytes       int64 // zero is DefaultBytes
	Files       int64 // zero is one file for each 16 KiB
	// Unlimited creates a plain directory without a quota.
	Unlimited bool
	// Budget limits the total size of the owner's volumes; zero is no limit.
	Budget int64
}

func (r *Request) check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if r.Unlimited {
		if r.Bytes != 0 || r.Files != 0 {
			return fault.New(fault.Invalid, "volume_quota_invalid", "an unlimited volume takes no size and no number of files")
		}
		return nil
	}
	if r.Bytes == 0 {
		r.Bytes = DefaultBytes
	}
	if r.Bytes < MinBytes || r.Bytes > maxBytes {
		return fault.Newf(fault.Invalid, "volume_quota_invalid", "the size of a volume is at least 16 MiB and at most 16 TiB, but is %d bytes", r.Bytes)
	}
	if r.Files == 0 {
		r.Files = r.Bytes / (16 << 10)
	}
	if r.Files < minFiles || r.Files > min(maxFiles, r.Bytes/4096) {
		return fault.Newf(fault.Invalid, "volume_quota_invalid", "the number of files in a volume is at least %d, at most one for each 4 KiB and at most %d, but is %d", minFiles, maxFiles, r.Files)
	}
	return nil
}

// Create creates a volume. If the process ends before Create returns, Sweep removes the unfinished
// volume.
func (s *Store) Create(ctx context.Context, req Request) (Volume, error) {
	if err := req.check(); err != nil {
		return Volume{}, err
	}
	v := Volume{
		ID: ids.New(IDPrefix), Name: req.Name, Owner: req.Owner, Token: ids.NewToken(),
		Bytes: req.Bytes, Files: req.Files, Created: time.Now().UTC().Round(0),
	}
	return s.create(ctx, v, req.Budget, func(dir string, v *Volume) (err error) {
		if !v.Enforced() {
			return makeTree(filepath.Join(dir, treeName))
		}
		v.Files, err = s.makeImage(ctx, dir, *v)
		return err
	})
}

// create fills a draft and publishes it under the volume's ID. Filling may set the volume's fields.
func (s *Store) create(ctx context.Context, v Volume, budget int64, fill func(dir string, v *Volume) error) (_ Volume, err error) {
	// Name and budget are checked before any work, and again when the volume is published.
	if err := s.checkFree(v, budget); err != nil {
		return Volume{}, err
	}
	dir, held, err := s.draft()
	if err != nil {
		return Volume{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard(dir))
		}
		err = errors.Join(err, held.Close())
	}()
	s.step("draft made")
	if err := fill(dir, &v); err != nil {
		return Volume{}, err
	}
	s.step("filled")
	if err := writeMeta(dir, v); err != nil {
		return Volume{}, err
	}
	s.step("described")
	all, err := s.lock()
	if err != nil {
		return Volume{}, err
	}
	defer all.Close()
	if err := s.checkFree(v, budget); err != nil {
		return Volume{}, err
	}
	if err := ctx.Err(); err != nil {
		return Volume{}, err
	}
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		return Volume{}, err
	}
	if err := os.Rename(dir, s.at(v.ID)); err != nil {
		return Volume{}, fmt.Errorf("create volume: %w", err)
	}
	s.step("named")
	return v, durable.SyncDir(s.dir)
}

// checkFree refuses a name that another volume of the owner has, and a size beyond the budget.
func (s *Store) checkFree(v Volume, budget int64) error {
	list, err := s.List()
	if err != nil {
		return err
	}
	total := v.Bytes
	for _, o := range list {
		if o.Owner != v.Owner {
			continue
		}
		if o.Name == v.Name {
			return fault.Newf(fault.Exists, "volume_exists", "there is a volume %q already", v.Name).
				WithHint("choose another name, or remove it: crannog volume rm " + v.Name)
		}
		total += o.Bytes
	}
	if budget > 0 && total > budget {
		return fault.Newf(fault.Exhausted, "volume_budget", "the volumes of this key may have %d bytes in all, and would have %d", budget, total).
			WithHint("remove a volume, or ask the operator to raise the setting volume_budget")
	}
	return nil
}

// draft creates a directory for a volume that is not published yet, and locks it. While the lock is
// held, Sweep knows that the creating process is alive.
func (s *Store) draft() (dir string, held *os.File, err error) {
	all, err := s.lock() // Sweep must not find the directory before its lock is held
	if err != nil {
		return "", nil, err
	}
	defer all.Close()
	if dir, err = os.MkdirTemp(s.dir, draftPrefix); err != nil {
		return "", nil, err
	}
	held, err = flock(filepath.Join(dir, lockName), unix.LOCK_EX)
	return dir, held, err
}

// makeTree creates the directory for the files of a volume without a quota.
func makeTree(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return giveToUser(dir)
}

// giveToUser makes a directory belong to the sandbox's user, which only root can do.
func giveToUser(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chown(dir, UserID, UserID)
}

// Sweep removes the drafts of processes that ended while they created or removed a volume.
func (s *Store) Sweep() error {
	if _, err := os.Stat(s.dir); err != nil {
		return ignoreMissing(err)
	}
	all, err := s.lock()
	if err != nil {
		return err
	}
	defer all.Close()
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), draftPrefix) {
			continue
		}
		dir := s.at(e.Name())
		held, err := flock(filepath.Join(dir, lockName), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			continue // its process is alive
		}
		if err != nil {
			errs = append(errs, ignoreMissing(err))
			continue
		}
		errs = append(errs, discard(dir), held.Close())
	}
	return errors.Join(errs...)
}

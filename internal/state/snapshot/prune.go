package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Remove deletes an image at once, and frees its blocks soon after. Descendants keep the pages that
// they share with it. Remove waits at most ten seconds for a lease to end, then returns Conflict
// with the code "snapshot_in_use". Removing an unknown image succeeds.
func (s *Images) Remove(ctx context.Context, id string) error {
	// Completing the image now would only delay its removal.
	s.interrupt(id)
	d, err := s.lockImage(ctx, id, unix.LOCK_EX, true)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	g := gone{dir: d, name: goneName(), packed: s.has(imagePath(id, indexFile))}
	taken, err := s.blocks(imagePath(id))
	if g.packed {
		taken = 0 // drain measures the rest
	}
	if err == nil {
		// The rename removes the image atomically: a crash leaves only a draft.
		s.step("remove: rename")
		err = s.changeAndCount(-taken, func() error { return s.root.Rename(imagePath(id), g.name) })
	}
	if err != nil {
		return errors.Join(fmt.Errorf("remove image %s: %w", id, err), d.Close())
	}
	s.notes.mu.Lock()
	delete(s.notes.sums, id)
	delete(s.notes.warned, id)
	s.notes.mu.Unlock()
	s.clear(g)
	return nil
}

func goneName() string { return path.Join(draftsDir, goneStage+"."+newName()) }

// gone is a directory in drafts that is to be deleted. Its lock prevents other processes from
// deleting it at the same time.
type gone struct {
	name   string
	dir    *os.File
	packed bool // its packs may be unused now
}

// clear deletes a directory in the background, because freeing tens of megabytes would delay the
// resume of a sandbox.
func (s *Images) clear(g gone) {
	s.notes.mu.Lock()
	s.notes.gone = append(s.notes.gone, g)
	s.notes.mu.Unlock()
	go s.drain()
}

// drain deletes the directories that are queued for deletion.
func (s *Images) drain() {
	s.clearing.Lock()
	defer s.clearing.Unlock()
	s.notes.mu.Lock()
	all := s.notes.gone
	s.notes.gone = nil
	s.notes.mu.Unlock()
	var packed bool
	var errs []error
	for _, g := range all {
		s.step("remove: files")
		errs = append(errs, s.root.RemoveAll(g.name), g.dir.Close())
		packed = packed || g.packed
	}
	if packed {
		errs = append(errs, s.collect(context.Background(), false))
		_, err := s.measure()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		// A later sweep or collection removes it.
		s.log.Warn("removed data is still on the disk", "err", err)
	}
}

// Prune deletes images for which keep returns false and that are not in use, drafts of ended
// processes, and pages that no image needs. It does not delete copies of host files. It returns the
// number of freed bytes.
func (s *Images) Prune(ctx context.Context, keep func(id string) bool) (int64, error) {
	s.deduplicating.Lock()
	defer s.deduplicating.Unlock()
	err := s.ready()
	var before int64
	if err == nil {
		before, err = s.measure()
	}
	if err != nil {
		return 0, fmt.Errorf("prune images: %w", err)
	}
	ids, err := s.list()
	if err != nil {
		return 0, fmt.Errorf("prune images: %w", err)
	}
	errs := []error{s.sweep()}
	for _, id := range ids {
		if keep(id) {
			continue
		}
		err := s.Remove(ctx, id)
		switch fault.KindOf(err) {
		case fault.Conflict:
			s.log.Warn("snapshot is being used and was not pruned", "snapshot", id)
		default:
			errs = append(errs, err)
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
	s.drain()
	errs = append(errs, s.collect(ctx, true))
	after, err := s.measure()
	return max(before-after, 0), errors.Join(append(errs, err)...)
}

// openByOthers reports whether another process has a file open. A kernel that was restored from a
// removed image keeps reading it after its sandbox is ready, and would read zeros for its programs'
// memory. A process that opens the file later has an image whose pages are needed.
func openByOthers(f *os.File) (bool, error) {
	// Such a lease is granted only if no other process has the file open. Some file systems grant
	// none; then the pack remains until none of its pages are needed.
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return true, nil
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	}
	if err != nil {
		return false, fmt.Errorf("look for readers of %s: %w", f.Name(), err)
	}
	return false, nil
}

// thin frees the blocks of unneeded pages, unless another process is reading the pack; then a later
// call frees them. Pages keep their positions, so no index changes. The lock of packs is held: a
// process that has read this pack to share its pages notices the change in publish.
func (s *Images) thin(name string, p *packUse) error {
	var live int64
	for _, n := range p.users {
		if n > 0 {
			live++
		}
	}
	if p.bytes <= live*pageBytes+leafBytes {
		return nil // nearly all of it is needed
	}
	f, err := s.root.OpenFile(packPath(name, ".pages"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("thin pack: %w", err)
	}
	if used, err := s.read(f); used || err != nil {
		return errors.Join(err, f.Close())
	}
	s.step("collect: pages")
	for from := 0; from < len(p.users) && err == nil; {
		to := from
		for to < len(p.users) && p.users[to] == 0 {
			to++
		}
		if to > from {
			err = punch(f, int64(from)*pageBytes, int64(to-from)*pageBytes)
		}
		from = to + 1
	}
	return errors.Join(err, f.Close())
}

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// A file of pages whose pages are also in packs is a copy that can be rebuilt. It is kept to speed
// up fork, rollback and resume, while all such copies take at most a quarter of the budget. Beyond
// that, the least recently committed or leased copies are removed. When a new image needs space,
// copies are removed in the same order. Leased copies are never removed. The first image of a
// lineage needs no copy, because its file is its pack.
const flatShare = 4

// flat is a copy of pages that can be rebuilt.
type flat struct {
	id    string
	bytes int64
	used  time.Time
}

// flats lists all copies, the least recently used first.
func (s *Images) flats() ([]flat, error) {
	ids, err := s.list()
	if err != nil {
		return nil, err
	}
	var all []flat
	for _, id := range ids {
		_, bytes, ok := s.copyOf(id)
		if !ok {
			continue
		}
		info, err := s.root.Lstat(imagePath(id, manifestFile))
		if err != nil {
			continue // it was removed
		}
		all = append(all, flat{id, bytes, info.ModTime()})
	}
	slices.SortFunc(all, func(a, b flat) int {
		return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.id, b.id))
	})
	return all, nil
}

// copyOf returns the name and the size of an image's pages, if they can be rebuilt.
func (s *Images) copyOf(id string) (name string, bytes int64, ok bool) {
	if !s.has(imagePath(id, indexFile)) {
		return "", 0, false
	}
	m, err := s.peek(id)
	if err != nil || m.Bulk.Kind != Pages {
		return "", 0, false
	}
	info, err := s.root.Lstat(imagePath(id, m.Bulk.Name))
	if err != nil {
		return "", 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	// A file with two names is also a pack.
	return m.Bulk.Name, st.Blocks * 512, ok && st.Nlink == 1
}

func (s *Images) has(name string) bool {
	_, err := s.root.Lstat(name)
	return err == nil
}

// evict removes unused copies until the given number of bytes is free or none are left.
func (s *Images) evict(need int64) error {
	all, err := s.flats()
	if err != nil {
		return err
	}
	for _, f := range all {
		if need <= 0 {
			break
		}
		dropped, err := s.dropCopy(f.id)
		if err != nil {
			return err
		}
		if dropped {
			need -= f.bytes
		}
	}
	return nil
}

// trim keeps copies within their share of the budget.
func (s *Images) trim() error {
	all, err := s.flats()
	if err != nil {
		return err
	}
	var sum int64
	for _, f := range all {
		sum += f.bytes
	}
	return s.evict(sum - s.space.budget/flatShare)
}

// dropCopy removes the copy of one image, unless it is in use.
func (s *Images) dropCopy(id string) (bool, error) {
	d, err := s.lockImage(context.Background(), id, unix.LOCK_EX, false)
	if errors.Is(err, errBusy) || fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	name, _, ok := s.copyOf(id)
	if !ok {
		return false, nil
	}
	s.step("drop copy")
	if err := s.root.Remove(imagePath(id, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// markChanged records that an image's big file was changed.
func (s *Images) markChanged(id string) {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	s.notes.spoiled[id] = true
}

// dropSpoiled removes a copy that was changed, so that the next lease rebuilds it. An image without
// packs stays damaged.
func (s *Images) dropSpoiled(id string) error {
	s.notes.mu.Lock()
	spoiled := s.notes.spoiled[id]
	delete(s.notes.spoiled, id)
	s.notes.mu.Unlock()
	if !spoiled {
		return nil
	}
	dropped, err := s.dropCopy(id)
	if dropped {
		s.log.Warn("removed a copy of pages that was changed", "snapshot", id)
	}
	return err
}

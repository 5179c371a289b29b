package snapshot

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Which flat copies are kept. A pages.img whose pages lie in packs too is a
// copy that can be made again. It stays, so that fork, rollback and resume find
// it, while all such copies together take at most a quarter of the budget;
// above that the ones go first whose last commit or lease is longest ago. When
// a new image needs the room, they go in the same order until it fits. A leased
// one never goes. The first image of a lineage needs no copy: its pages.img is
// its pack.
const flatShare = 4

// freeMin is how much of the disk is left to others.
const freeMin = 16 << 20

// blocks is how much of the disk the files below a directory take, also those
// with other names elsewhere.
func (s *Images) blocks(dir string) (int64, error) {
	var sum int64
	err := s.files(dir, func(_ string, st *syscall.Stat_t) { sum += st.Blocks * 512 })
	return sum, err
}

// files tells of each file directly in a directory. One that goes away
// meanwhile is left out.
func (s *Images) files(dir string, each func(name string, st *syscall.Stat_t)) error {
	entries, err := fs.ReadDir(s.root.FS(), dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		info, err := s.root.Lstat(path.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			each(e.Name(), st)
		}
	}
	return nil
}

// list names the images, sorted.
func (s *Images) list() ([]string, error) {
	entries, err := fs.ReadDir(s.root.FS(), imagesDir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if validID(e.Name()) == nil && e.IsDir() {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// measure counts what images and packs take of the disk. What is being written
// counts when it is committed.
func (s *Images) measure() (int64, error) {
	ids, err := s.list()
	if err != nil {
		return 0, err
	}
	var sum int64
	twice := map[uint64]bool{}
	count := func(_ string, st *syscall.Stat_t) {
		if st.Nlink > 1 && twice[st.Ino] {
			return
		}
		twice[st.Ino] = st.Nlink > 1
		sum += st.Blocks * 512
	}
	for _, dir := range append(ids, "") {
		name := packsDir
		if dir != "" {
			name = imagePath(dir)
		}
		if err := s.files(name, count); err != nil {
			return 0, err
		}
	}
	s.used.Store(sum)
	return sum, nil
}

// makeRoom sees to it that need more bytes fit into the budget and on the disk.
func (s *Images) makeRoom(need int64) error {
	if s.used.Load()+need > s.budget {
		s.drain()
		used, err := s.measure()
		if err != nil {
			return err
		}
		if over := used + need - s.budget; over > 0 {
			if err := s.evict(over); err != nil {
				return err
			}
			if used, err = s.measure(); err != nil {
				return err
			}
		}
		if used+need > s.budget {
			return fault.Newf(fault.Exhausted, "snapshot_budget", "snapshots take %d MiB of the %d MiB that they may", used>>20, s.budget>>20).
				WithHint("remove snapshots with crannog prune, or raise the budget")
		}
	}
	free, err := s.free()
	if err == nil && free < freeMin {
		s.drain()
		if err = s.evict(freeMin); err == nil {
			free, err = s.free()
		}
	}
	if err == nil && free < freeMin {
		err = unix.ENOSPC
	}
	return diskFault(err)
}

// flat is a copy of pages that can be made again.
type flat struct {
	id    string
	bytes int64
	used  time.Time
}

// flats lists all copies, the one that was used longest ago first.
func (s *Images) flats() ([]flat, error) {
	ids, err := s.list()
	if err != nil {
		return nil, err
	}
	var all []flat
	for _, id := range ids {
		bytes, ok := s.copyOf(id)
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

// copyOf reports whether an image's pages.img can be made again, and what it
// takes.
func (s *Images) copyOf(id string) (int64, bool) {
	info, err := s.root.Lstat(imagePath(id, PagesFile))
	if err != nil || !s.has(imagePath(id, indexFile)) {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	// With two names it is a pack.
	return st.Blocks * 512, ok && st.Nlink == 1
}

func (s *Images) has(name string) bool {
	_, err := s.root.Lstat(name)
	return err == nil
}

// evict drops copies that nobody holds until that has freed some bytes, if
// there are enough.
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

// trim keeps copies within their share.
func (s *Images) trim() error {
	all, err := s.flats()
	if err != nil {
		return err
	}
	var sum int64
	for _, f := range all {
		sum += f.bytes
	}
	return s.evict(sum - s.budget/flatShare)
}

// dropCopy drops the copy of one image, unless somebody holds it.
func (s *Images) dropCopy(id string) (bool, error) {
	d, err := s.hold(context.Background(), id, unix.LOCK_EX, false)
	if errors.Is(err, errBusy) || fault.KindOf(err) == fault.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer d.Close()
	if _, ok := s.copyOf(id); !ok {
		return false, nil
	}
	s.step("drop copy")
	if err := s.root.Remove(imagePath(id, PagesFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	return true, nil
}

// spoil notes that an image's big file is not what it was.
func (s *Images) spoil(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoiled[id] = true
}

// dropSpoiled drops a copy that was found to be changed, so that the next
// lease makes it again. An image without packs stays damaged.
func (s *Images) dropSpoiled(id string) error {
	s.mu.Lock()
	was := s.spoiled[id]
	delete(s.spoiled, id)
	s.mu.Unlock()
	if !was {
		return nil
	}
	dropped, err := s.dropCopy(id)
	if dropped {
		s.log.Warn("dropped a copy of pages that was changed", "snapshot", id)
	}
	return err
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// minFree is the disk space that is left to others.
const minFree = 16 << 20

// blocks returns the disk space of the files below a directory, including those with other names
// elsewhere.
func (s *Images) blocks(dir string) (int64, error) {
	var sum int64
	err := s.files(dir, func(_ string, st *syscall.Stat_t) { sum += st.Blocks * 512 })
	return sum, err
}

// files calls each for every file directly in a directory. It skips a file that is removed during
// the listing.
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

// measure counts the disk space of images and packs anew. A file with two names counts once.
func (s *Images) measure() (int64, error) {
	s.space.tally.Lock()
	defer s.space.tally.Unlock()
	ids, err := s.list()
	if err != nil {
		return 0, err
	}
	var sum int64
	linked := map[uint64]bool{}
	count := func(_ string, st *syscall.Stat_t) {
		if st.Nlink > 1 && linked[st.Ino] {
			return
		}
		linked[st.Ino] = st.Nlink > 1
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
	s.space.used.Store(sum)
	return sum, nil
}

// draftBytes returns the disk space of drafts of all processes. Files that Deduplicate and Lease
// write belong to images that are already counted, and unfinished removals will soon be complete.
func (s *Images) draftBytes() (int64, error) {
	entries, err := fs.ReadDir(s.root.FS(), draftsDir)
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, e := range entries {
		if slices.Contains(ownStages, prefixOf(e.Name())) {
			continue
		}
		n, err := s.blocks(path.Join(draftsDir, e.Name()))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	s.space.tally.Lock()
	defer s.space.tally.Unlock()
	// A draft that is being committed is counted by its claim, and for a short time also here.
	return max(sum-s.space.claimed, 0), nil
}

// changeAndCount changes the disk and its count together, so that a concurrent measurement never
// sees one without the other.
func (s *Images) changeAndCount(bytes int64, change func() error) error {
	s.space.tally.Lock()
	defer s.space.tally.Unlock()
	if err := change(); err != nil {
		return err
	}
	s.space.used.Add(bytes)
	return nil
}

// over returns how many bytes exceed the budget after adding need.
func (s *Images) over(need int64) int64 {
	s.space.tally.Lock()
	defer s.space.tally.Unlock()
	return s.space.used.Load() + s.space.claimed + need - s.space.budget
}

// claim reserves bytes before they are counted, so that no other call uses them. A negative value
// releases them.
func (s *Images) claim(bytes int64) {
	s.space.tally.Lock()
	defer s.space.tally.Unlock()
	s.space.claimed += bytes
}

// admit frees space for another draft: images and drafts together must be below the budget. The
// size of the new draft is unknown. Its sandbox's memory would be a bad estimate, because often far
// less is written.
func (s *Images) admit() error {
	others, err := s.draftBytes()
	if err == nil && others > 0 && s.over(others+1) > 0 {
		// Drafts of ended processes are among them.
		if err = s.sweep(); err == nil {
			others, err = s.draftBytes()
		}
	}
	if err != nil {
		return err
	}
	if err := s.makeRoom(1, others); err != nil {
		return err
	}
	s.claim(-1) // the call only checks whether there is any room
	return nil
}

// makeRoom frees space for mine more bytes within the budget, considering claims of others, and
// claims them. The caller releases the claim.
func (s *Images) makeRoom(mine, others int64) error {
	need := mine + others
	s.space.roomMu.Lock()
	defer s.space.roomMu.Unlock()
	// Each step costs more than the one before: removed files, pages of removed images, pages that
	// images share, and copies that may soon have to be rebuilt.
	for _, free := range []func() error{
		func() error { s.drain(); return nil },
		func() error { return s.collect(context.Background(), true) },
		s.deduplicateInTime,
		func() error { return s.evict(s.over(need)) },
	} {
		if s.over(need) <= 0 {
			break
		}
		err := free()
		if _, merr := s.measure(); merr != nil {
			return errors.Join(err, merr)
		}
		if err != nil {
			// There may be enough space without this step.
			s.log.Warn("could not make room", "err", err)
		}
	}
	if over := s.over(need); over > 0 {
		return s.refuse(mine, others, over)
	}
	s.claim(mine)
	return nil
}

// deduplicateTimeout limits how long saving a sandbox waits for images to be completed.
const deduplicateTimeout = 20 * time.Second

// deduplicatePoll is the interval at which deduplicateInTime checks whether another call has ended.
const deduplicatePoll = 50 * time.Millisecond

// deduplicateInTime completes images, because images that were saved one after the other take
// several times their final size until then.
func (s *Images) deduplicateInTime() error {
	ctx, cancel := context.WithTimeout(context.Background(), deduplicateTimeout)
	defer cancel()
	// Another call that is completing images does the same work, and may take minutes.
	for !s.deduplicating.TryLock() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for another process that deduplicates images: %w", ctx.Err())
		case <-time.After(deduplicatePoll):
		}
	}
	defer s.deduplicating.Unlock()
	_, err := s.deduplicateAll(ctx)
	return err
}

// refuse returns the error for a full budget, with the missing amount.
func (s *Images) refuse(mine, others, over int64) error {
	text := fmt.Sprintf("snapshots take %d MiB of the %d MiB that they may", s.space.used.Load()>>20, s.space.budget>>20)
	if others > 0 {
		text += fmt.Sprintf(", and %d MiB are being written", ceilMiB(others))
	}
	if mine > 1 {
		text += fmt.Sprintf(", and this one takes %d MiB: %d MiB too many", ceilMiB(mine), ceilMiB(over))
	}
	return fault.New(fault.Exhausted, "snapshot_budget", text).
		WithHint("remove snapshots with crannog snapshot rm, or raise the budget")
}

func ceilMiB(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// checkDisk checks that the disk has some free space at the start.
func (s *Images) checkDisk() error {
	free, err := s.free()
	if err == nil && free < minFree {
		s.drain()
		if err = s.evict(minFree); err == nil {
			free, err = s.free()
		}
	}
	if err == nil && free < minFree {
		err = unix.ENOSPC
	}
	return diskFault(err)
}

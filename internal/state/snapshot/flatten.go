package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// segmentPages limits the pages that one system call copies, so that several cores can share a long
// run.
const segmentPages = 1024

// flatten ensures that an image has its big file, with the right size. The caller holds the image's
// lock.
func (s *Images) flatten(ctx context.Context, m manifest) error {
	for {
		info, err := s.root.Lstat(imagePath(m.ID, m.Bulk.Name))
		if err == nil && info.Size() != m.Bulk.Bytes {
			s.markChanged(m.ID)
			return damaged(m.ID, m.Bulk.Name+" has the wrong size", nil)
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if m.Bulk.Kind != Pages || !s.has(imagePath(m.ID, indexFile)) {
			return damaged(m.ID, m.Bulk.Name+" is missing", err)
		}
		s.notes.mu.Lock()
		wait, other := s.notes.building[m.ID]
		if !other {
			wait = make(chan struct{})
			s.notes.building[m.ID] = wait
		}
		s.notes.mu.Unlock()
		if !other {
			err := s.build(ctx, m)
			s.notes.mu.Lock()
			delete(s.notes.building, m.ID)
			s.notes.mu.Unlock()
			close(wait)
			return diskFault(err)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Canceled, "canceled", "canceled while waiting for a snapshot's pages")
		}
	}
}

// stagedPages is the name of pages that are being assembled.
const stagedPages = "pages"

// build assembles an image's pages from packs. A copy may exceed the budget while it is leased,
// because a paused sandbox must not be lost when other images fill the budget.
func (s *Images) build(ctx context.Context, m manifest) error {
	if err := s.ready(); err != nil {
		return err
	}
	x, err := s.readIndex(m.ID)
	if err != nil {
		return err
	}
	if int64(x.pages)*pageBytes != m.Bulk.Bytes {
		return damaged(m.ID, "its index has the wrong size", nil)
	}
	if over := s.space.used.Load() + m.Bulk.Bytes - s.space.budget; over > 0 {
		if err := s.evict(over); err != nil {
			return err
		}
	}
	packs := make([]*os.File, 0, len(x.packs))
	defer func() {
		for _, f := range packs {
			f.Close()
		}
	}()
	for _, name := range x.packs {
		f, err := openRegular(s.root, packPath(name, ".pages"))
		if err != nil {
			return readFault(m.ID, "a pack", err)
		}
		packs = append(packs, f)
	}
	g, err := s.newStage(buildStage)
	if err != nil {
		return err
	}
	s.step("build: pages")
	err = g.assemble(ctx, x, packs)
	if errors.Is(err, errShort) {
		err = damaged(m.ID, "a pack is too short", err)
	}
	if err == nil {
		s.step("build: rename")
		err = s.changeAndCount(m.Bulk.Bytes, func() error { return s.root.Rename(g.path(stagedPages), imagePath(m.ID, m.Bulk.Name)) })
	}
	return errors.Join(err, g.drop())
}

// assemble copies all runs of an index into a new file.
func (g *stage) assemble(ctx context.Context, x index, packs []*os.File) error {
	out, err := g.create(stagedPages)
	if err != nil {
		return err
	}
	if err := out.Truncate(int64(x.pages) * pageBytes); err != nil {
		return errors.Join(err, out.Close())
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(min(runtime.GOMAXPROCS(0), 4))
	var at uint64
	for _, r := range x.runs {
		for done := uint64(0); r.pack != 0 && done < r.count; done += segmentPages {
			n := min(segmentPages, r.count-done)
			from, to := int64(r.at+done)*pageBytes, int64(at+done)*pageBytes
			work.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return copyRange(out, packs[r.pack-1], to, from, int64(n)*pageBytes)
			})
		}
		at += r.count
	}
	return errors.Join(work.Wait(), out.Close())
}

// copyRange copies within the kernel, or by reading and writing if that is not possible.
func copyRange(out, in *os.File, to, from, n int64) error {
	for n > 0 {
		src, dst := from, to
		did, err := unix.CopyFileRange(int(in.Fd()), &src, int(out.Fd()), &dst, int(n), 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
			return copyByHand(out, in, to, from, n)
		case err != nil:
			return fmt.Errorf("copy pages: %w", err)
		case did == 0:
			return errShort
		}
		from, to, n = from+int64(did), to+int64(did), n-int64(did)
	}
	return nil
}

func copyByHand(out, in *os.File, to, from, n int64) error {
	buf := leafBuffers.Get().(*[]byte)
	defer leafBuffers.Put(buf)
	for n > 0 {
		b := (*buf)[:min(leafBytes, n)]
		if err := readFull(in, b, from); err != nil {
			return err
		}
		if _, err := out.WriteAt(b, to); err != nil {
			return err
		}
		from, to, n = from+int64(len(b)), to+int64(len(b)), n-int64(len(b))
	}
	return nil
}

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/crannog/crannog/internal/fault"
)

// Size is the size of an image.
type Size struct {
	Bytes int64 // of its files
	// Own is the disk space that is freed by removing the image, after Prune.
	Own int64
	// Durable reports whether the image survives a power failure.
	Durable bool
}

// packUse counts the users of a pack's pages, up to two.
type packUse struct {
	users []uint8
	bytes int64 // of the disk
}

// pageUsage has the pages that images need.
type pageUsage struct {
	indexes map[string]index
	packs   map[string]*packUse
	broken  []string // images whose index cannot be read
}

func (s *Images) measureUsage(ctx context.Context) (pageUsage, error) {
	v := pageUsage{indexes: map[string]index{}, packs: map[string]*packUse{}}
	err := s.files(packsDir, func(name string, st *syscall.Stat_t) {
		if pack, ok := strings.CutSuffix(name, ".pages"); ok && validPack(pack) {
			v.packs[pack] = &packUse{users: make([]uint8, min(st.Size, maxBytes)/pageBytes), bytes: st.Blocks * 512}
		}
	})
	if err != nil {
		return v, err
	}
	ids, err := s.list()
	if err != nil {
		return v, err
	}
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		if !s.has(imagePath(id, indexFile)) {
			continue
		}
		x, err := s.readIndex(id)
		if fault.CodeOf(err) == "snapshot_damaged" {
			// The image may also have been removed just now.
			if s.has(imagePath(id, indexFile)) {
				s.warn(id, err)
				v.broken = append(v.broken, id)
			}
			continue
		}
		if err != nil {
			return v, err
		}
		v.indexes[id] = x
		v.pages(x, func(users []uint8) {
			for i := range users {
				users[i] = min(users[i]+1, 2)
			}
		})
	}
	return v, nil
}

// pages calls back with the counts of all pages that an index needs.
func (v pageUsage) pages(x index, each func(users []uint8)) {
	for _, r := range x.runs {
		if r.pack == 0 {
			continue
		}
		if p := v.packs[x.packs[r.pack-1]]; p != nil && r.at+r.count <= uint64(len(p.users)) {
			each(p.users[r.at : r.at+r.count])
		}
	}
}

// Sizes returns the size of each image. It reads all indexes.
func (s *Images) Sizes(ctx context.Context) (map[string]Size, error) {
	v, err := s.measureUsage(ctx)
	if err != nil {
		return nil, fmt.Errorf("measure images: %w", err)
	}
	ids, err := s.list()
	if err != nil {
		return nil, fmt.Errorf("measure images: %w", err)
	}
	sizes := make(map[string]Size, len(ids))
	for _, id := range ids {
		var z Size
		x, packed := v.indexes[id]
		err := s.files(imagePath(id), func(name string, st *syscall.Stat_t) {
			// The pages of a file that is also a pack are counted below.
			if st.Nlink == 1 || !packed {
				z.Own += st.Blocks * 512
			}
		})
		if err != nil {
			return nil, fmt.Errorf("measure image %s: %w", id, err)
		}
		v.pages(x, func(users []uint8) {
			for _, n := range users {
				if n == 1 {
					z.Own += pageBytes
				}
			}
		})
		if data, err := s.readManifest(id); err == nil {
			if m, err := s.decode(data); err == nil {
				z.Bytes, z.Durable = m.bytes(), m.complete()
			}
		}
		sizes[id] = z
	}
	return sizes, nil
}

// collect removes packs that no image needs and, with pages, unneeded pages of other packs. If an
// index cannot be read, the pages that it needs are unknown, and nothing is removed.
func (s *Images) collect(ctx context.Context, pages bool) error {
	unlock, err := s.lockPacks(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	v, err := s.measureUsage(ctx)
	if err != nil {
		return fmt.Errorf("collect packs: %w", err)
	}
	if len(v.broken) > 0 {
		return nil
	}
	needed := map[string]bool{}
	for _, x := range v.indexes {
		for _, p := range x.packs {
			needed[p] = true
		}
	}
	// After a power failure, a removed image must not reappear without its pages.
	if err := s.syncDir(imagesDir); err != nil {
		return err
	}
	var errs []error
	errs = append(errs, s.files(packsDir, func(name string, _ *syscall.Stat_t) {
		if pack, _, _ := strings.Cut(name, "."); !needed[pack] {
			s.step("collect: pack")
			errs = append(errs, s.root.Remove(packPath(name, "")))
		}
	}))
	if err := errors.Join(errs...); err != nil || !pages {
		return err
	}
	for name, p := range v.packs {
		if needed[name] {
			if err := s.thin(name, p); err != nil {
				return err
			}
		}
	}
	return nil
}

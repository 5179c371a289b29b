package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
)

// maxLineagePacks limits the packs of an image. More packs would need as many open files for each
// rebuild. At the limit, the next image starts a new lineage.
const maxLineagePacks = 64

// pack moves the pages of a completed image that its parent does not have into a new pack. The
// first image of a lineage becomes a pack as it is. The image's lock is held.
func (s *Images) pack(ctx context.Context, m manifest) error {
	var have []string
	if m.Parent != "" && s.has(imagePath(m.Parent, indexFile)) {
		x, err := s.readIndex(m.Parent)
		if err != nil {
			s.warn(m.Parent, err)
		}
		if len(x.packs) < maxLineagePacks {
			have = x.packs
		}
	}
	c, err := s.openCatalog(have)
	if err != nil {
		return err
	}
	defer c.close()
	g, err := s.newStage(packStage)
	if err != nil {
		return err
	}
	return errors.Join(s.packInto(ctx, g, m, c), g.drop())
}

func (s *Images) packInto(ctx context.Context, g *stage, m manifest, c *catalog) error {
	// Punching a hole needs a writable descriptor.
	f, err := s.root.OpenFile(imagePath(m.ID, m.Bulk.Name), os.O_RDWR, 0)
	if err != nil {
		return readFault(m.ID, m.Bulk.Name, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != m.Bulk.Bytes {
		return errors.Join(damaged(m.ID, m.Bulk.Name+" has another size", nil), err)
	}
	name := newName()
	var x index
	var sums []byte
	s.step("pack: pages")
	if len(c.names) == 0 {
		x, sums, err = adopt(ctx, f, m.Bulk.Bytes, name)
	} else {
		x, sums, err = splitInto(ctx, g, f, m.Bulk.Bytes, c, name)
	}
	if err == nil {
		x.compact()
		s.step("pack: sums")
		err = g.write("sums", sums, true)
	}
	if err == nil {
		s.step("pack: index")
		err = g.write(indexFile, x.encode(), true)
	}
	if err == nil {
		err = s.publish(ctx, g, m, name, x, c)
	}
	if err != nil || len(c.names) > 0 {
		return err
	}
	return s.reread(ctx, f, m.ID)
}

// reread verifies a file whose change time was altered by a second name, so that the next lease
// need not.
func (s *Images) reread(ctx context.Context, f *os.File, id string) error {
	data, err := s.readManifest(id)
	if err != nil {
		return err
	}
	m, err := s.decode(data)
	if err != nil {
		return err
	}
	before, err := identify(f)
	if err != nil {
		return err
	}
	tree, err := treeSlowly(ctx, f, m.Bulk.Bytes, noProgress)
	if err != nil {
		return err
	}
	if after, err := identify(f); err == nil && after == before {
		// Store the actual hash, not the expected one: a lease compares them.
		s.known.add(before, tree)
	}
	return nil
}

func splitInto(ctx context.Context, g *stage, f *os.File, size int64, c *catalog, name string) (index, []byte, error) {
	out, err := g.create(stagedPages)
	if err != nil {
		return index{}, nil, err
	}
	x, sums, err := split(ctx, f, out, size, c, name)
	if err == nil {
		err = out.Sync()
	}
	return x, sums, errors.Join(err, out.Close())
}

// publish moves a new pack and its index into place. Until the index is there, no image needs the
// pack, and collect removes it.
func (s *Images) publish(ctx context.Context, g *stage, m manifest, name string, x index, c *catalog) error {
	unlock, err := s.lockPacks(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	// Packs may have lost pages, or been removed, since they were read.
	for i, f := range c.files {
		now, err := identify(f)
		if err != nil {
			return err
		}
		if now != c.seen[i] || !s.has(packPath(c.names[i], ".pages")) {
			return errBusy
		}
	}
	if slices.Contains(x.packs, name) {
		s.step("publish: sums")
		if err := s.root.Rename(g.path("sums"), packPath(name, ".sums")); err != nil {
			return fmt.Errorf("publish pack: %w", err)
		}
		s.step("publish: pages")
		if len(c.names) == 0 {
			err = s.root.Link(imagePath(m.ID, m.Bulk.Name), packPath(name, ".pages"))
		} else {
			err = s.root.Rename(g.path(stagedPages), packPath(name, ".pages"))
		}
		if err == nil {
			err = s.syncDir(packsDir)
		}
		if err != nil {
			return fmt.Errorf("publish pack: %w", err)
		}
	}
	s.step("publish: index")
	if err := s.root.Rename(g.path(indexFile), imagePath(m.ID, indexFile)); err != nil {
		return fmt.Errorf("publish index: %w", err)
	}
	s.step("publish: sync")
	return s.syncDir(imagePath(m.ID))
}

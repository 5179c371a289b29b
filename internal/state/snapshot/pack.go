package snapshot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A pack is a file of pages with a file of their checksums. Checksums only show where to look:
// pages are compared byte by byte, so that neither a collision made by a sandbox nor a damaged pack
// gets into an image.

var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

var zeroPage = sync.OnceValue(func() []byte { return make([]byte, pageBytes) })

func isZero(page []byte) bool { return bytes.Equal(page, zeroPage()) }

// pagePosition is a page in a pack.
type pagePosition struct {
	pack uint32 // as in an index
	at   uint64
}

// catalog finds pages in some packs.
type catalog struct {
	names []string
	files []*os.File
	seen  []identity
	at    map[uint32]pagePosition
}

// openCatalog reads the checksums of packs. It ignores a pack without them.
func (s *Images) openCatalog(names []string) (*catalog, error) {
	c := &catalog{at: map[uint32]pagePosition{}}
	for _, name := range names {
		if err := c.open(s.root, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *catalog) open(root *os.Root, name string) error {
	f, err := openRegular(root, packPath(name, ".pages"))
	if err != nil {
		return err
	}
	seen, err := identify(f)
	var sums []byte
	if err == nil {
		sums, err = readSums(root, name)
	}
	if err != nil || int64(len(sums))*pageBytes != seen.Bytes*4 {
		return errors.Join(err, f.Close())
	}
	c.names, c.files, c.seen = append(c.names, name), append(c.files, f), append(c.seen, seen)
	for i := range len(sums) / 4 {
		sum := binary.LittleEndian.Uint32(sums[4*i:])
		// The first pack with a page is nearest to the image.
		if _, ok := c.at[sum]; !ok && sum != 0 {
			c.at[sum] = pagePosition{uint32(len(c.names)), uint64(i)}
		}
	}
	return nil
}

func readSums(root *os.Root, name string) ([]byte, error) {
	f, err := openRegular(root, packPath(name, ".sums"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxIndexBytes))
}

func (c *catalog) close() {
	for _, f := range c.files {
		f.Close()
	}
}

// find searches for a page. buf has space for one page.
func (c *catalog) find(page []byte, sum uint32, buf []byte) (pagePosition, bool) {
	p, ok := c.at[sum]
	if !ok || readFull(c.files[p.pack-1], buf, int64(p.at)*pageBytes) != nil {
		return pagePosition{}, false
	}
	return p, bytes.Equal(page, buf)
}

// split writes the pages of a flat file that are not in a catalog to out, as a new pack, which is
// the last one in the index.
func split(ctx context.Context, f, out *os.File, size int64, c *catalog, name string) (index, []byte, error) {
	x := index{packs: append(c.names[:len(c.names):len(c.names)], name)}
	own := uint32(len(x.packs))
	var sums, fresh []byte
	var written uint64
	page := make([]byte, pageBytes)
	err := eachPage(ctx, f, size, func(_ int64, p []byte) error {
		if isZero(p) {
			x.add(0, 0)
			return nil
		}
		sum := crc32.Checksum(p, castagnoli())
		if at, ok := c.find(p, sum, page); ok {
			x.add(at.pack, at.at)
			return nil
		}
		x.add(own, written)
		written++
		sums = binary.LittleEndian.AppendUint32(sums, sum)
		fresh = append(fresh, p...)
		return nil
	}, func() error {
		_, err := out.Write(fresh)
		fresh = fresh[:0]
		return err
	})
	return x, sums, err
}

// minHolePages is the minimum number of pages for which a hole is worth its entry in the file's
// map. gVisor omits most zero pages itself.
const minHolePages = 4

// adopt makes a flat file itself a pack. The disk blocks of its zeros are released.
func adopt(ctx context.Context, f *os.File, size int64, name string) (index, []byte, error) {
	x := index{packs: []string{name}}
	sums := make([]byte, 0, size/pageBytes*4)
	err := eachPage(ctx, f, size, func(i int64, p []byte) error {
		sum := crc32.Checksum(p, castagnoli())
		if isZero(p) {
			x.add(0, 0)
			sum = 0
		} else {
			x.add(1, uint64(i))
		}
		sums = binary.LittleEndian.AppendUint32(sums, sum)
		return nil
	}, func() error { return nil })
	if err != nil {
		return index{}, nil, err
	}
	at := int64(0)
	for _, r := range x.runs {
		if r.pack == 0 && r.count >= minHolePages {
			if err := punch(f, at*pageBytes, int64(r.count)*pageBytes); err != nil {
				return index{}, nil, err
			}
		}
		at += int64(r.count)
	}
	return x, sums, nil
}

// punch releases a part of a file as a hole. If the file system does not support this, the blocks
// stay allocated.
func punch(f *os.File, off, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("punch %s: %w", f.Name(), err)
	}
	return nil
}

// eachPage reads a file slowly and calls flush at the end of each leaf.
func eachPage(ctx context.Context, f *os.File, size int64, each func(i int64, page []byte) error, flush func() error) error {
	buf := leafBuffers.Get().(*[]byte)
	defer leafBuffers.Put(buf)
	p := newPace()
	for off := int64(0); off < size; off += leafBytes {
		b := (*buf)[:min(leafBytes, size-off)]
		if err := readFull(f, b, off); err != nil {
			return err
		}
		for i := int64(0); i < int64(len(b)); i += pageBytes {
			if err := each((off+i)/pageBytes, b[i:i+pageBytes]); err != nil {
				return err
			}
		}
		if err := flush(); err != nil {
			return err
		}
		if err := p.breathe(ctx); err != nil {
			return err
		}
	}
	return nil
}

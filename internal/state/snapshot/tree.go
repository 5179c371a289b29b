package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// leafBytes is the size of a leaf, which fits into a core's cache.
const leafBytes = 256 << 10

var leafBuffers = sync.Pool{New: func() any { b := make([]byte, leafBytes); return &b }}

// errShort is returned for a file that is shorter than expected.
var errShort = errors.New("the file is too short")

// hasher is treeOf or treeSlowly. each is called for every leaf.
type hasher func(ctx context.Context, f *os.File, size int64, each func(off, n int64)) (digest, error)

func noProgress(int64, int64) {}

// treeOf hashes the hashes of all leaves of a file, so that several cores can read it. The result
// depends on the size too. each is called concurrently.
func treeOf(ctx context.Context, f *os.File, size int64, each func(off, n int64)) (digest, error) {
	leaves := make([]digest, (size+leafBytes-1)/leafBytes)
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), 4, max(len(leaves), 1)) {
		g.Go(func() error {
			buf := leafBuffers.Get().(*[]byte)
			defer leafBuffers.Put(buf)
			for {
				i := next.Add(1) - 1
				if i >= int64(len(leaves)) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := hashLeaf(f, *buf, i, size, &leaves[i]); err != nil {
					return err
				}
				each(i*leafBytes, min(leafBytes, size-i*leafBytes))
			}
		})
	}
	if err := g.Wait(); err != nil {
		return digest{}, err
	}
	return rootHash(leaves, size), nil
}

// treeSlowly is like treeOf, with at most half of a core.
func treeSlowly(ctx context.Context, f *os.File, size int64, each func(off, n int64)) (digest, error) {
	leaves := make([]digest, (size+leafBytes-1)/leafBytes)
	buf := leafBuffers.Get().(*[]byte)
	defer leafBuffers.Put(buf)
	p := newPace()
	for i := range leaves {
		if err := hashLeaf(f, *buf, int64(i), size, &leaves[i]); err != nil {
			return digest{}, err
		}
		off := int64(i) * leafBytes
		each(off, min(leafBytes, size-off))
		if err := p.breathe(ctx); err != nil {
			return digest{}, err
		}
	}
	return rootHash(leaves, size), nil
}

func hashLeaf(f *os.File, buf []byte, i, size int64, into *digest) error {
	off := i * leafBytes
	buf = buf[:min(leafBytes, size-off)]
	if err := readFull(f, buf, off); err != nil {
		return err
	}
	*into = sha256.Sum256(buf)
	return nil
}

// rootHash combines leaves. The first byte and the size ensure that a short file whose content is a
// list of hashes has another hash than a long file.
func rootHash(leaves []digest, size int64) digest {
	h := sha256.New()
	fmt.Fprintf(h, "crannog tree %d of %d\n", leafBytes, size)
	for i := range leaves {
		h.Write(leaves[i][:])
	}
	return digest(h.Sum(nil))
}

// readFull fills buf from a file that must be long enough.
func readFull(f *os.File, buf []byte, off int64) error {
	n, err := f.ReadAt(buf, off)
	if n == len(buf) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return errShort
	}
	return fmt.Errorf("read %s: %w", f.Name(), err)
}

// pace leaves at least half of the processor time to others. A low priority would be simpler, but a
// thread that waits for its turn also delays the garbage collector, and with it the whole server.
type pace struct {
	since time.Time
	unit  time.Duration
}

func newPace() *pace { return &pace{since: time.Now(), unit: time.Millisecond} }

// breathe pauses for as long as the last unit of work took.
func (p *pace) breathe(ctx context.Context) error {
	worked := time.Since(p.since)
	if worked < p.unit {
		return ctx.Err()
	}
	t := time.NewTimer(min(worked, 10*time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.since = time.Now()
	return nil
}

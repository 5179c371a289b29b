package recording

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"
)

// pollEvery is the interval at which a followed recording is read again. Output reaches the disk
// within flushAfter.
const pollEvery = 100 * time.Millisecond

// Follow opens a recording for following: until the command has ended, reads wait for more output.
// They fail when ctx ends. The caller closes the result.
func (s *Store) Follow(ctx context.Context, sandbox string, n int) (io.ReadCloser, error) {
	dir, err := s.path(sandbox)
	if err != nil {
		return nil, err
	}
	current, err := s.Open(sandbox, n)
	if err != nil {
		return nil, err
	}
	return &following{ctx: ctx, store: s, sandbox: sandbox, dir: dir, n: n, current: current}, nil
}

// following reads a growing recording.
type following struct {
	ctx     context.Context
	store   *Store
	sandbox string
	dir     string
	n       int
	current io.ReadCloser // file that has the recording now
	sent    int64         // bytes that were read
	index   os.FileInfo   // state of the index when it was last read
	last    bool          // the command has ended, and the recording is complete
}

// Read implements io.Reader.
func (f *following) Read(b []byte) (int, error) {
	for {
		n, err := f.current.Read(b)
		f.sent += int64(n)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) || f.last {
			return n, err
		}
		if err := f.waitForMore(); err != nil {
			return 0, err
		}
	}
}

// waitForMore waits until there may be more output.
func (f *following) waitForMore() error {
	ended, err := f.ended()
	if err != nil {
		return err
	}
	if !ended {
		timer := time.NewTimer(pollEvery)
		defer timer.Stop()
		select {
		case <-f.ctx.Done():
			return f.ctx.Err()
		case <-timer.C:
		}
	}
	if _, grows := f.current.(*os.File); grows {
		f.last = ended
		return nil
	}
	// In the meantime the recording may have got its own file, or have been moved to a pack at its
	// end.
	next, err := f.store.Open(f.sandbox, f.n)
	if err != nil {
		return err
	}
	if err := errors.Join(skip(next, f.sent), f.current.Close()); err != nil {
		return errors.Join(err, next.Close())
	}
	f.current, f.last = next, ended
	return nil
}

// skip reads n bytes and discards them.
func skip(r io.Reader, n int64) error {
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// ended reports whether the index has the end of the command. It reads the index only after a
// change.
func (f *following) ended() (ended bool, err error) {
	index, err := os.Lstat(filepath.Join(f.dir, indexFile))
	if err != nil {
		return false, err
	}
	if f.index != nil && os.SameFile(f.index, index) && f.index.Size() == index.Size() {
		return false, nil
	}
	f.index = index
	err = entries(f.dir, func(e entry) { ended = ended || e.N == f.n && e.ended() })
	return ended, err
}

// Close implements io.Closer.
func (f *following) Close() error { return f.current.Close() }

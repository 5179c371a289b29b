package recording

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/host/durable"
)

const (
	// maxIndex is the size at which the older half of an index is dropped.
	maxIndex = 8 << 20
	// maxPack is the size at which a new pack is started.
	maxPack = 1 << 20
)

// history is the state of a sandbox's recordings in one process. A change needs mu and the lock of
// the index, which all processes share.
type history struct {
	dir     string
	running int // running commands; guarded by Store.mu

	mu    sync.Mutex
	index *os.File // nil while closed
	seen  int64    // bytes of the index that were read
	last  int      // the greatest number in the index
	pack  *os.File // nil while closed
	packN int      // number of the pack
	gone  bool     // the sandbox was removed, and nothing may be added
	// idle means that the sandbox has ended, so that files are closed after each use.
	idle bool
}

// errGone is returned for a sandbox that was removed.
var errGone = errors.New("the sandbox was removed")

// entry is one line of the index.
type entry struct {
	Head
	Tail
	// Pack, At and Size locate a recording without a file of its own. On disk a pack is called a
	// reel, because state directories of earlier versions have this name.
	Pack int   `json:"reel,omitempty"`
	At   int64 `json:"at,omitempty"`
	Size int64 `json:"size,omitempty"`
}

// begin assigns a number to a command.
func (r *history) begin(h Head) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = false
	err = r.locked(func() error {
		n = r.last + 1
		h.N = n
		return r.add(h)
	})
	return n, err
}

// end writes the end of a command. content is its recording, or empty if that has a file of its
// own.
func (r *history) end(n int, t Tail, content []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.locked(func() error {
		line := tailLine{N: n, Tail: t}
		if len(content) > 0 {
			at, err := r.append(content)
			if err != nil {
				return err
			}
			line.Pack, line.At, line.Size = r.packN, at, int64(len(content))
		}
		return r.add(line)
	})
	if r.idle {
		err = errors.Join(err, r.closeFiles())
	}
	return err
}

// closeIdle closes open files, and makes later ends of commands close them again.
func (r *history) closeIdle() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = true
	return r.closeFiles()
}

// tailLine is the index line of a command that has ended.
type tailLine struct {
	N int `json:"n"`
	Tail
	Pack int   `json:"reel,omitempty"`
	At   int64 `json:"at,omitempty"`
	Size int64 `json:"size,omitempty"`
}

// maxTries limits the attempts to open an index that other processes replace.
const maxTries = 100

// locked calls do with the lock of the index, after reading the lines that other processes have
// added. The caller holds r.mu.
func (r *history) locked(do func() error) error {
	for range maxTries {
		if r.gone {
			return errGone
		}
		if r.index == nil {
			if err := r.open(); err != nil {
				return err
			}
		}
		fd := int(r.index.Fd())
		if err := unix.Flock(fd, unix.LOCK_EX); err != nil {
			return fmt.Errorf("recordings: %w", err)
		}
		current, err := r.catchUp()
		if err == nil && current {
			err = do()
		}
		if e := unix.Flock(fd, unix.LOCK_UN); e != nil {
			err = errors.Join(err, e)
		}
		if err != nil || current {
			return err
		}
		// Another process has removed or replaced the index.
		if err := r.closeFiles(); err != nil {
			return err
		}
	}
	return errors.New("recordings: other processes replaced the index during all attempts to open it")
}

// open opens the index. The caller holds r.mu.
func (r *history) open() error {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(r.dir, indexFile), os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	// If a command's number cannot be written, the command does not run. The reserved space
	// prevents a sandbox that fills the disk from stopping all others.
	if info, err := f.Stat(); err != nil || diskroom.Preallocate(f, info.Size(), aheadBytes) != nil {
		return errors.Join(errors.New("recordings: cannot reserve disk space"), err, f.Close())
	}
	r.index, r.seen, r.last = f, 0, 0
	return nil
}

// catchUp reads the new lines of the index. It returns false if the index was removed or replaced.
func (r *history) catchUp() (current bool, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(r.index.Fd()), &stat); err != nil {
		return false, fmt.Errorf("recordings: %w", err)
	}
	if stat.Nlink == 0 {
		return false, nil
	}
	if stat.Size > maxIndex {
		return false, r.halve(stat.Size)
	}
	if stat.Size == r.seen {
		return true, nil
	}
	lines := bufio.NewReader(io.NewSectionReader(r.index, r.seen, stat.Size-r.seen))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(line) > 0 { // left by a writer that was killed
				if _, err := r.index.Write([]byte{'\n'}); err != nil {
					return false, fmt.Errorf("recordings: %w", err)
				}
				stat.Size++
			}
			r.seen = stat.Size
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("recordings: %w", err)
		}
		var e struct {
			N int `json:"n"`
		}
		if json.Unmarshal(line, &e) == nil {
			r.last = max(r.last, e.N)
		}
	}
}

// halve replaces the index by its newer half. The caller holds the lock of the index.
func (r *history) halve(size int64) error {
	newer := make([]byte, maxIndex/2)
	n, err := r.index.ReadAt(newer, size-int64(len(newer)))
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("recordings: %w", err)
	}
	_, newer, _ = bytes.Cut(newer[:n], []byte{'\n'})
	if err := durable.Replace(filepath.Join(r.dir, indexFile), newer, durable.Options{}); err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	return nil
}

// add appends a line to the index. The caller holds the lock of the index.
func (r *history) add(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	n, err := r.index.Write(append(line, '\n'))
	r.seen += int64(n)
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	if h, ok := v.(Head); ok {
		r.last = h.N
	}
	return nil
}

// append adds a recording to the pack and returns its place. The caller holds the lock of the
// index.
func (r *history) append(content []byte) (at int64, err error) {
	for range maxTries {
		if r.pack == nil {
			if err := r.openPack(); err != nil {
				return 0, err
			}
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(r.pack.Fd()), &stat); err != nil {
			return 0, fmt.Errorf("recordings: %w", err)
		}
		if stat.Nlink > 0 && stat.Size < maxPack {
			if _, err := r.pack.Write(content); err != nil {
				return 0, fmt.Errorf("recordings: %w", err)
			}
			return stat.Size, nil
		}
		if err := r.pack.Close(); err != nil {
			return 0, fmt.Errorf("recordings: %w", err)
		}
		r.pack = nil
	}
	return 0, errors.New("recordings: cannot write to a pack")
}

// aheadBytes is the disk space reserved for future lines of the index.
const aheadBytes = 64 << 10

// openPack opens the last pack, or a new one if the last one is full.
func (r *history) openPack() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	last := max(r.packN, 1)
	for _, e := range entries {
		if n, ok := parsePackName(e.Name()); ok {
			last = max(last, n)
		}
	}
	if info, err := os.Stat(filepath.Join(r.dir, packName(last))); err == nil && info.Size() >= maxPack || err != nil && last == r.packN {
		last++ // the number of a dropped pack is not used again, because the index still refers to it
	}
	f, err := os.OpenFile(filepath.Join(r.dir, packName(last)), os.O_WRONLY|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	r.pack, r.packN = f, last
	return nil
}

// release closes open files. The history opens them again when it is used.
func (r *history) release() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closeFiles()
}

// closeForGood closes open files permanently.
func (r *history) closeForGood() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone = true
	return r.closeFiles()
}

// closedForGood reports whether the sandbox was removed.
func (r *history) closedForGood() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gone
}

// closeFiles is like release, with r.mu held.
func (r *history) closeFiles() error {
	var errs []error
	for _, f := range []**os.File{&r.index, &r.pack} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// entries reads a sandbox's index. It skips invalid lines, which a killed writer may leave.
func entries(dir string, yield func(entry)) error {
	f, err := os.OpenFile(filepath.Join(dir, indexFile), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewReaderSize(f, 64<<10); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("recordings: %w", err)
		}
		var e entry
		if json.Unmarshal(line, &e) == nil && e.N > 0 {
			yield(e)
		}
	}
}

// ended reports whether an entry is the end of its command.
func (e entry) ended() bool { return e.Ended != time.Time{} }

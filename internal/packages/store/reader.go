package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

// Reader reads the cache through a descriptor of its directory.
type Reader struct {
	dir *os.File
	// Tests set the time, and the size from which on a content counts as large.
	now   func() time.Time
	large int64

	mu       sync.Mutex
	verified map[string]verified // large contents, by their digest
}

// verified is a content that had its digest at a time.
type verified struct {
	state FileState
	at    time.Time
}

// Clients read a large layer in many parts. Comparing the whole layer with its digest for each would
// take minutes, so a comparison counts for verifiedLife for contents from largeContent on. Only
// servers write contents, and they only replace them.
const (
	largeContent = 64 << 20
	verifiedLife = time.Minute
	maxVerified  = 256
)

// NewReader returns a Reader. It does not take over the descriptor, which the caller closes.
func NewReader(dir *os.File) *Reader {
	return &Reader{dir: dir, now: time.Now, large: largeContent, verified: map[string]verified{}}
}

// OpenDir opens the directory for NewReader.
func OpenDir(stateDir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(stateDir, DirName), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// Find returns the entry of a key and its content, which the caller must close. Find compares the
// content with its digest, so a damaged file counts as missing. The error has the kind NotFound if
// there is no entry.
func (r *Reader) Find(key string) (Entry, *os.File, error) {
	e, err := r.entry(key)
	if err != nil {
		return Entry{}, nil, err
	}
	f, err := r.open(shardPath(blobsDir, e.SHA256))
	if err != nil {
		return Entry{}, nil, err
	}
	state, err := StateOf(f)
	if err == nil && r.isVerified(e, state) {
		return e, f, nil
	}
	sum, n := sha256.New(), int64(0)
	if err == nil {
		n, err = io.Copy(sum, f)
	}
	if err == nil && (n != e.Size || hex.EncodeToString(sum.Sum(nil)) != e.SHA256) {
		err = missing(errors.New("the content is damaged"))
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		return Entry{}, nil, err
	}
	r.noteVerified(e, state)
	return e, f, nil
}

// isVerified reports whether a large content was compared with its digest shortly before.
func (r *Reader) isVerified(e Entry, state FileState) bool {
	if e.Size < r.large {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.verified[e.SHA256]
	return ok && v.state == state && state.Size == e.Size && r.now().Sub(v.at) < verifiedLife
}

func (r *Reader) noteVerified(e Entry, state FileState) {
	if e.Size < r.large {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.verified) >= maxVerified {
		clear(r.verified)
	}
	r.verified[e.SHA256] = verified{state, r.now()}
}

// Advisories opens the advisory database of an ecosystem, which the caller must close. The error has
// the kind NotFound if there is none.
func (r *Reader) Advisories(e packages.Ecosystem) (*os.File, error) { return r.open(AdvisoryFile(e)) }

// Keyring opens the keys that may sign the lists of Debian archives, which the caller must close. The
// error has the kind NotFound if there are none.
func (r *Reader) Keyring() (*os.File, error) { return r.open(KeyringFile) }

// Entry returns the entry of a key, without a look at its content. The error has the kind NotFound if
// there is none.
func (r *Reader) Entry(key string) (Entry, error) { return r.entry(key) }

func (r *Reader) entry(key string) (Entry, error) {
	f, err := r.open(shardPath(entriesDir, keySum(key)))
	if err != nil {
		return Entry{}, err
	}
	defer f.Close()
	e, err := readEntry(f)
	if err == nil && e.Key != key {
		err = missing(errors.New("the entry is of another URL"))
	}
	return e, err
}

func readEntry(f io.Reader) (Entry, error) {
	text, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	if err != nil {
		return Entry{}, err
	}
	return parseEntry(text)
}

func parseEntry(text []byte) (Entry, error) {
	var e Entry
	if len(text) > maxEntry {
		return e, missing(errors.New("the entry is too long"))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&e); err != nil {
		return Entry{}, missing(err)
	}
	if err := e.check(); err != nil {
		return Entry{}, missing(err)
	}
	return e, nil
}

func (r *Reader) open(name string) (*os.File, error) {
	raw, err := r.dir.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	controlErr := raw.Control(func(dir uintptr) {
		fd, err = unix.Openat(int(dir), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err := errors.Join(controlErr, err); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, missing(err)
		}
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func missing(err error) error {
	return fault.Wrap(err, fault.NotFound, "package_not_cached", "the package cache does not have it")
}

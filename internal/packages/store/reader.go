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

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

// Reader reads the cache through a descriptor of its directory.
type Reader struct{ dir *os.File }

// NewReader returns a Reader. It does not take over the descriptor, which the caller closes.
func NewReader(dir *os.File) *Reader { return &Reader{dir} }

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
	sum := sha256.New()
	n, err := io.Copy(sum, f)
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
	return e, f, nil
}

// Advisories opens the advisory database of an ecosystem, which the caller must close. The error has
// the kind NotFound if there is none.
func (r *Reader) Advisories(e packages.Ecosystem) (*os.File, error) { return r.open(AdvisoryFile(e)) }

// Keyring opens the keys that may sign the lists of Debian archives, which the caller must close. The
// error has the kind NotFound if there are none.
func (r *Reader) Keyring() (*os.File, error) { return r.open(KeyringFile) }

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

package keyring

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Files opens the file of keys. The error has the kind NotFound if there is none.
type Files interface {
	Keyring() (*os.File, error)
}

// Reader reads the file of keys again after it was replaced.
type Reader struct {
	files Files

	mu    sync.Mutex
	keys  Keys
	state fileState
}

// fileState identifies the content of a file.
type fileState struct {
	dev, ino       uint64
	size           int64
	modified, meta unix.Timespec
}

// NewReader returns a Reader.
func NewReader(files Files) *Reader { return &Reader{files: files} }

// Keys returns the keys as they are now. Without a file there are none.
func (r *Reader) Keys() (Keys, error) {
	f, err := r.files.Keyring()
	if fault.KindOf(err) == fault.NotFound {
		return Keys{}, nil
	}
	if err != nil {
		return Keys{}, err
	}
	defer f.Close()
	var info unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &info); err != nil {
		return Keys{}, err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return Keys{}, errors.New("the keys of archives are not in a file")
	}
	now := fileState{dev: info.Dev, ino: info.Ino, size: info.Size, modified: info.Mtim, meta: info.Ctim}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now == r.state {
		return r.keys, nil
	}
	keys := Keys{}
	if info.Size > 0 {
		data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
		if err == nil {
			keys, err = Parse(data)
		}
		if err != nil {
			return Keys{}, fmt.Errorf("read the keys of archives: %w", err)
		}
	}
	r.keys, r.state = keys, now
	return keys, nil
}

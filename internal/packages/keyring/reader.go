package keyring

import (
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/store"
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
	state store.FileState
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
	now, err := store.StateOf(f)
	if err != nil {
		return Keys{}, fmt.Errorf("read the keys of archives: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now == r.state {
		return r.keys, nil
	}
	keys := Keys{}
	if now.Size > 0 {
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

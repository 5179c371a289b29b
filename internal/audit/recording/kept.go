package recording

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/host/durable"
)

// Kept describes recordings that outlive their sandbox.
type Kept struct {
	Sandbox   string    `json:"sandbox"`
	Workspace string    `json:"workspace,omitempty"` // the host directory that the sandbox showed
	TakenAt   time.Time `json:"taken_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// keptFile holds a Kept. It lies in the directory of the recordings, so that both are removed in
// one step.
const keptFile = "kept"

// Keep lets the recordings of a sandbox outlive it, and reports whether there are any. Call it
// before the sandbox is removed: if the process dies in between, the expiry time of the recordings
// is known.
func (s *Store) Keep(k Kept) (bool, error) {
	dir, err := s.path(k.Sandbox)
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(filepath.Join(dir, indexFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("recordings: %w", err)
	}
	text, err := json.Marshal(k)
	if err != nil {
		return false, err
	}
	// The file need not be durable: after a power failure without it, the recordings are removed
	// with their sandbox, as if Keep had never been called.
	o := durable.Options{Draft: keptFile + ".new-*", Step: func(name string) error {
		if name == "name" {
			s.step("written")
		}
		return nil
	}}
	if err := durable.Replace(filepath.Join(dir, keptFile), text, o); err != nil {
		return false, fmt.Errorf("keep recordings: %w", err)
	}
	s.step("kept")
	return true, nil
}

// Let undoes Keep: the recordings are removed with their sandbox.
func (s *Store) Let(sandbox string) error {
	dir, err := s.path(sandbox)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, keptFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recordings: %w", err)
	}
	return nil
}

// Kept reports whether the recordings of a sandbox outlive it. It is false if the file cannot be
// read.
func (s *Store) Kept(sandbox string) (Kept, bool) {
	k, ok := s.kept(sandbox)
	return k, ok && time.Now().Before(k.ExpiresAt)
}

// maxKept bounds the size of keptFile.
const maxKept = 64 << 10

func (s *Store) kept(sandbox string) (k Kept, ok bool) {
	dir, err := s.path(sandbox)
	if err != nil {
		return Kept{}, false
	}
	f, err := open(filepath.Join(dir, keptFile))
	if err != nil {
		return Kept{}, false
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxKept)) // a file that is too long is not valid JSON either
	d.DisallowUnknownFields()
	if d.Decode(&k) != nil || k.Sandbox != sandbox {
		return Kept{}, false
	}
	return k, true
}

// ListKept returns all kept recordings, also expired ones and those of existing sandboxes, the
// newest first.
func (s *Store) ListKept() ([]Kept, error) {
	ids, err := s.List()
	if err != nil {
		return nil, err
	}
	var out []Kept
	for _, id := range ids {
		if k, ok := s.kept(id); ok {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(x, y Kept) int {
		return cmp.Or(y.TakenAt.Compare(x.TakenAt), strings.Compare(x.Sandbox, y.Sandbox))
	})
	return out, nil
}

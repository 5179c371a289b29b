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

// Retained describes recordings that outlive their sandbox.
type Retained struct {
	Sandbox   string    `json:"sandbox"`
	Workspace string    `json:"workspace,omitempty"` // the host directory that the sandbox showed
	TakenAt   time.Time `json:"taken_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// retainedFile has a Retained. It is in the directory of the recordings, so that both are removed
// in one step.
const retainedFile = "kept"

// Retain makes the recordings of a sandbox outlive it, and reports whether there are any. Call it
// before the sandbox is removed, so that the expiry time is known even if the process is killed in
// between.
func (s *Store) Retain(k Retained) (bool, error) {
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
	// The file need not be durable. If a power failure removes it, the recordings are removed with
	// their sandbox, as if Retain had not been called.
	o := durable.Options{Draft: retainedFile + ".new-*", Step: func(name string) error {
		if name == "name" {
			s.step("written")
		}
		return nil
	}}
	if err := durable.Replace(filepath.Join(dir, retainedFile), text, o); err != nil {
		return false, fmt.Errorf("keep recordings: %w", err)
	}
	s.step("kept")
	return true, nil
}

// Discard reverses Retain: the recordings are removed with their sandbox.
func (s *Store) Discard(sandbox string) error {
	dir, err := s.path(sandbox)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, retainedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recordings: %w", err)
	}
	return nil
}

// Retained returns the description of recordings that outlive their sandbox. It returns false if
// there is none or if it cannot be read.
func (s *Store) Retained(sandbox string) (Retained, bool) {
	k, ok := s.readRetained(sandbox)
	return k, ok && time.Now().Before(k.ExpiresAt)
}

// maxRetained limits the size of retainedFile.
const maxRetained = 64 << 10

func (s *Store) readRetained(sandbox string) (k Retained, ok bool) {
	dir, err := s.path(sandbox)
	if err != nil {
		return Retained{}, false
	}
	f, err := open(filepath.Join(dir, retainedFile))
	if err != nil {
		return Retained{}, false
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxRetained)) // a file that is too long is not valid JSON either
	d.DisallowUnknownFields()
	if d.Decode(&k) != nil || k.Sandbox != sandbox {
		return Retained{}, false
	}
	return k, true
}

// ListRetained returns all retained recordings, including expired ones and those of existing
// sandboxes, newest first.
func (s *Store) ListRetained() ([]Retained, error) {
	ids, err := s.List()
	if err != nil {
		return nil, err
	}
	var out []Retained
	for _, id := range ids {
		if k, ok := s.readRetained(id); ok {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(x, y Retained) int {
		return cmp.Or(y.TakenAt.Compare(x.TakenAt), strings.Compare(x.Sandbox, y.Sandbox))
	})
	return out, nil
}

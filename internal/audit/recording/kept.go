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

// Kept says of recordings that they outlive their sandbox.
type Kept struct {
	Sandbox   string    `json:"sandbox"`
	Workspace string    `json:"workspace,omitempty"` // the host directory that it showed
	TakenAt   time.Time `json:"taken_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// keptFile is where that is said. It lies among the recordings, so that it
// comes and goes with them in one step.
const keptFile = "kept"

// Keep lets the recordings of a sandbox outlive it. It reports whether there
// are any. It is done before the sandbox is forgotten: who dies in between
// leaves recordings of which the time is known.
func (s *Shelf) Keep(k Kept) (bool, error) {
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
	// It need not be durable: what is missing after a power failure is removed with its
	// sandbox, as if it had never been requested.
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

// Let takes back what Keep did: the recordings go with their sandbox.
func (s *Shelf) Let(sandbox string) error {
	dir, err := s.path(sandbox)
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, keptFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recordings: %w", err)
	}
	return nil
}

// Kept reports whether the recordings of a sandbox outlive it, now. What cannot be
// read does not.
func (s *Shelf) Kept(sandbox string) (Kept, bool) {
	k, ok := s.kept(sandbox)
	return k, ok && time.Now().Before(k.ExpiresAt)
}

// maxKept bounds the file that says so.
const maxKept = 64 << 10

func (s *Shelf) kept(sandbox string) (k Kept, ok bool) {
	dir, err := s.path(sandbox)
	if err != nil {
		return Kept{}, false
	}
	f, err := open(filepath.Join(dir, keptFile))
	if err != nil {
		return Kept{}, false
	}
	defer f.Close()
	d := json.NewDecoder(io.LimitReader(f, maxKept)) // what was not read is no JSON
	d.DisallowUnknownFields()
	if d.Decode(&k) != nil || k.Sandbox != sandbox {
		return Kept{}, false
	}
	return k, true
}

// ListKept returns what outlives or may outlive its sandbox, the newest first,
// also what has expired.
func (s *Shelf) ListKept() ([]Kept, error) {
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

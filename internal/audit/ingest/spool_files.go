package ingest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/ids"
)

// aheadBytes is what is reserved of the disk for a sandbox's next lines.
const aheadBytes = 256 << 10

// Create opens a sandbox's file of the first form for writing. Existing content stays: the lines
// of a sandbox are one sequence. From then on until Remove the file is in List.
func (s *Spools) Create(sandbox string) (*os.File, error) {
	path, err := s.path(s.o.Forms[0], sandbox)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	// A sandbox in which nothing can be noted runs nothing: one that fills the disk
	// would stop all others.
	info, err := f.Stat()
	if err == nil {
		err = diskroom.Ahead(f, info.Size(), aheadBytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("spool: %w", err), f.Close())
	}
	fresh, err := newMark(s.markPath(sandbox))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh {
		s.made[sandbox] = true
	}
	return f, nil
}

func (s *Spools) path(f Form, sandbox string) (string, error) {
	// An ID is part of a path here: nothing but its own alphabet may pass.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	return filepath.Join(f.Dir, sandbox+suffix), nil
}

// markPath is beside the file of the first form.
func (s *Spools) markPath(sandbox string) string {
	return filepath.Join(s.o.Forms[0].Dir, sandbox+markSuffix)
}

// Remove drops a sandbox's file of the first form, and how far all were read. One that is not there is
// success. Who calls it has drained all, or wants nothing of it: nothing of the
// sandbox is to be taken in any more.
func (s *Spools) Remove(sandbox string) error {
	path, err := s.path(s.o.Forms[0], sandbox)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.made, sandbox)
	s.mu.Unlock()
	if err := s.Leave(sandbox); err != nil {
		return err
	}
	// The mark goes last: what a crash leaves is found by it.
	for _, path := range []string{path, s.markPath(sandbox)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("spool: %w", err)
		}
	}
	return nil
}

// Has reports whether there may be lines of a sandbox that are not in the log yet.
func (s *Spools) Has(sandbox string) (bool, error) {
	if err := ids.CheckSandbox(sandbox); err != nil {
		return false, err
	}
	_, err := os.Lstat(s.markPath(sandbox))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List names the sandboxes of which something may still be to be taken in.
func (s *Spools) List() ([]string, error) {
	entries, err := os.ReadDir(s.o.Forms[0].Dir)
	if err != nil {
		return nil, fmt.Errorf("spools: %w", err)
	}
	var list []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), markSuffix); ok && ids.ValidSandbox(id) {
			list = append(list, id)
		}
	}
	return list, nil
}

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

// aheadBytes is the disk space that is reserved for a sandbox's next lines.
const aheadBytes = 256 << 10

// Create opens a sandbox's file of the first Form for appending. The lines of a sandbox are one
// sequence. The sandbox is in List until Remove.
func (s *Ingester) Create(sandbox string) (*os.File, error) {
	path, err := s.path(s.o.Forms[0], sandbox)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("event files: %w", err)
	}
	// Without space for its events, a sandbox does not start. Otherwise a sandbox that fills the
	// disk would stop all others.
	info, err := f.Stat()
	if err == nil {
		err = diskroom.Preallocate(f, info.Size(), aheadBytes)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("event files: %w", err), f.Close())
	}
	fresh, err := newMark(s.markPath(sandbox))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh {
		s.fresh[sandbox] = true
	}
	return f, nil
}

// path returns the path of a sandbox's file of a Form.
func (s *Ingester) path(f Form, sandbox string) (string, error) {
	// The ID becomes part of a path, so it must contain only characters of the ID alphabet.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	return filepath.Join(f.Dir, sandbox+suffix), nil
}

// markPath returns the path of the mark, beside the file of the first Form.
func (s *Ingester) markPath(sandbox string) string {
	return filepath.Join(s.o.Forms[0].Dir, sandbox+markSuffix)
}

// Remove removes a sandbox's file of the first Form, and the positions in all its files. A missing
// file is not an error. The caller must have drained the files, or must not need their lines,
// because nothing of the sandbox is ingested afterwards.
func (s *Ingester) Remove(sandbox string) error {
	path, err := s.path(s.o.Forms[0], sandbox)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.fresh, sandbox)
	s.mu.Unlock()
	if err := s.Leave(sandbox); err != nil {
		return err
	}
	// Remove the mark last, so that the sandbox is still in List if this is interrupted.
	for _, path := range []string{path, s.markPath(sandbox)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("event files: %w", err)
		}
	}
	return nil
}

// Has reports whether a sandbox may have lines that are not in the audit log yet.
func (s *Ingester) Has(sandbox string) (bool, error) {
	if err := ids.CheckSandbox(sandbox); err != nil {
		return false, err
	}
	_, err := os.Lstat(s.markPath(sandbox))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// List returns the sandboxes that may have lines to ingest.
func (s *Ingester) List() ([]string, error) {
	entries, err := os.ReadDir(s.o.Forms[0].Dir)
	if err != nil {
		return nil, fmt.Errorf("event files: %w", err)
	}
	var list []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), markSuffix); ok && ids.ValidSandbox(id) {
			list = append(list, id)
		}
	}
	return list, nil
}

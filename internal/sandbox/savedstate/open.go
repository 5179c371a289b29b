package savedstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

// Source is the saved state from which an instance starts. The zero value is none.
type Source struct {
	Saved sandbox.Saved
	// Dir is the directory of a state that is not an image, or "".
	Dir string
	// Files ignores the memory that was saved with the files.
	Files bool
	// Image is the image of the saved memory, if the instance has another.
	Image *engine.Image
	// Needs are the host files to which the state in Dir refers.
	Needs *sandbox.Needs
}

// Memory reports whether the state includes memory, and not only files.
func (f Source) Memory() bool { return f.Saved.Image != "" && !f.Saved.FilesOnly && !f.Files }

// Opened is a saved state from which a boot starts. The zero value and nil are none.
type Opened struct {
	Dir     string   // directory of saved memory, or ""
	Archive *os.File // archive of files, or nil
	release func() error
}

// Close closes the state, once.
func (o *Opened) Close() error {
	if o == nil {
		return nil
	}
	var err error
	if o.Archive != nil {
		err = o.Archive.Close()
		o.Archive = nil
	}
	if o.release != nil {
		err = errors.Join(err, o.release())
		o.release = nil
	}
	return err
}

// Open opens and verifies the state from which an instance starts: a directory of memory, an
// archive of files, or neither.
func (s *Service) Open(ctx context.Context, name string, spec engine.Spec, from Source) (_ *Opened, err error) {
	o := &Opened{Dir: from.Dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	if from.Saved.Image != "" {
		if err := s.Available(); err != nil {
			return nil, err
		}
		lease, err := s.deps.Images.Lease(ctx, from.Saved.Image, from.Saved.Sum)
		if err != nil {
			return nil, err
		}
		o.Dir, o.release = lease.Dir(), lease.Release
		if err := lease.Verify(ctx); err != nil {
			return nil, err
		}
	}
	dir := o.Dir
	switch {
	case from.Saved.FilesOnly:
		o.Dir = ""
		if o.Archive, err = os.Open(filepath.Join(dir, archiveName)); err != nil {
			return nil, fmt.Errorf("archive of files: %w", err)
		}
	case from.Files:
		o.Dir = ""
		if from.Image != nil {
			spec.Image = *from.Image
		}
		archive, drop, err := s.extract(ctx, name, spec, dir)
		if err != nil {
			return nil, err
		}
		release := o.release
		o.Archive, o.release = archive, func() error {
			if release == nil {
				return drop()
			}
			return errors.Join(drop(), release())
		}
	}
	return o, nil
}

// StandIns returns the copies that an instance uses instead of changed host files. Extracting files
// from memory does not need them.
func (s *Service) StandIns(from Source) ([]engine.Bind, error) {
	needs := from.Needs
	if from.Saved.Image != "" {
		needs = from.Saved.Needs
	}
	list, missing, err := s.files.replacements(needs)
	if missing != "" && !from.Files {
		return nil, programsChanged(missing)
	}
	return list, err
}

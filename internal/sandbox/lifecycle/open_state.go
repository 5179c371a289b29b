package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/engine"
)

// openState is the saved state that a boot starts from. The zero value and nil are none.
type openState struct {
	dir     string   // of saved memory, or ""
	archive *os.File // of files, or nil
	release func() error
}

// close lets go of the state, once.
func (o *openState) close() error {
	if o == nil {
		return nil
	}
	var err error
	if o.archive != nil {
		err = o.archive.Close()
		o.archive = nil
	}
	if o.release != nil {
		err = errors.Join(err, o.release())
		o.release = nil
	}
	return err
}

// open finds the state that an instance starts from, and has all of it verified: a
// directory of memory, an archive of files, or neither.
func (s *Service) open(ctx context.Context, name string, spec engine.Spec, from source) (_ *openState, err error) {
	o := &openState{dir: from.dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close())
		}
	}()
	if from.saved.Image != "" {
		if s.images == nil {
			return nil, noImages()
		}
		lease, err := s.images.Lease(ctx, from.saved.Image, from.saved.Sum)
		if err != nil {
			return nil, err
		}
		o.dir, o.release = lease.Dir(), lease.Release
		if err := lease.Verify(ctx); err != nil {
			return nil, err
		}
	}
	dir := o.dir
	switch {
	case from.saved.FilesOnly:
		o.dir = ""
		if o.archive, err = os.Open(filepath.Join(dir, archiveName)); err != nil {
			return nil, fmt.Errorf("archive of files: %w", err)
		}
	case from.files:
		o.dir = ""
		if from.image != nil {
			spec.Image = *from.image
		}
		archive, drop, err := s.extract(ctx, name, spec, dir)
		if err != nil {
			return nil, err
		}
		release := o.release
		o.archive, o.release = archive, func() error {
			if release == nil {
				return drop()
			}
			return errors.Join(drop(), release())
		}
	}
	return o, nil
}

package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// stage is a private directory for incomplete files. Its lock shows that its process is alive.
type stage struct {
	s    *Images
	name string // below the directory of images
	dir  *os.File
}

// ownStages are the prefixes of directories among the drafts that are not drafts: stages of
// existing images, and unfinished removals.
var ownStages = []string{completeStage, packStage, buildStage, goneStage}

const (
	goneStage     = "gone"
	completeStage = "settle"
	packStage     = "pack"
	buildStage    = "build"
)

func prefixOf(name string) string {
	prefix, _, _ := strings.Cut(name, ".")
	return prefix
}

func (s *Images) newStage(prefix string) (*stage, error) {
	for {
		name := path.Join(draftsDir, prefix+"."+newName())
		if err := s.root.Mkdir(name, 0o700); err != nil {
			return nil, diskFault(fmt.Errorf("make draft: %w", err))
		}
		d, err := s.root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open draft: %w", err)
		}
		if tryLock(d, unix.LOCK_EX) == nil && s.isAt(d, name) {
			return &stage{s: s, name: name, dir: d}, nil
		}
		// A sweeping process found the directory before it was locked.
		d.Close()
	}
}

// drop removes the rest of a stage.
func (g *stage) drop() error {
	return errors.Join(g.s.root.RemoveAll(g.name), g.dir.Close())
}

func (g *stage) path(name string) string { return path.Join(g.name, name) }

// create creates a file in a stage.
func (g *stage) create(name string) (*os.File, error) {
	f, err := g.s.root.OpenFile(g.path(name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	return f, diskFault(err)
}

// write writes a small file in a stage, synced if requested.
func (g *stage) write(name string, data []byte, synced bool) error {
	f, err := g.create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && synced {
		err = f.Sync()
	}
	return diskFault(errors.Join(err, f.Close()))
}

// sweep removes the stages of ended processes.
func (s *Images) sweep() error {
	entries, err := fs.ReadDir(s.root.FS(), draftsDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(draftsDir, e.Name())
		if !e.IsDir() {
			// Crannog creates no other entries, so no process uses it.
			if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			continue
		}
		d, err := s.root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = tryLock(d, unix.LOCK_EX)
		if err == nil && s.isAt(d, name) {
			s.step("sweep")
			err = s.root.RemoveAll(name)
		}
		d.Close()
		if err != nil && !errors.Is(err, errBusy) {
			return err
		}
	}
	return nil
}

// syncDir makes the names in a directory durable.
func (s *Images) syncDir(name string) error {
	d, err := s.root.Open(name)
	if err != nil {
		return err
	}
	return diskFault(errors.Join(d.Sync(), d.Close()))
}

// Package stagetree owns the directory with the files of a stage that is being built: layers are
// unpacked into it, commands run in sandboxes that show it, and files are copied out of it.
package stagetree

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/filetree/fileowners"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/image/root"
)

// Tree is the directory of a stage's files. Only one goroutine at a time changes it.
type Tree struct {
	Dir    string
	limits layer.Limits
	// made are paths that no layer has, because they were created for sandboxes.
	made map[string]bool
	// owners are the owners and set-id bits that the layers name. The files on the host have
	// neither.
	owners layer.Owners
}

// New creates an empty tree.
func New(dir string, limits layer.Limits) (*Tree, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return &Tree{Dir: dir, limits: limits, made: map[string]bool{}, owners: layer.Owners{}}, os.Chmod(dir, 0o755)
}

// Unpacked returns the tree of an unpacked image. It is read-only.
func Unpacked(dir string) *Tree { return &Tree{Dir: dir, made: map[string]bool{}} }

// change opens the tree for a change and completes the change.
func (t *Tree) change(do func(*layer.Tree) error) error {
	l, err := layer.Open(t.Dir, t.limits)
	if err != nil {
		return err
	}
	defer l.Close()
	l.Continue(t.owners)
	if err := do(l); err != nil {
		return err
	}
	return l.Finish()
}

// Apply unpacks a layer of the blob store.
func (t *Tree) Apply(ctx context.Context, digest v1.Hash, blobs *blob.Store) error {
	f, err := blobs.Open(digest)
	if err != nil {
		return err
	}
	defer f.Close()
	plain, err := layer.Uncompress(f)
	if err != nil {
		return fmt.Errorf("layer %s: %w", digest, err)
	}
	defer plain.Close()
	err = t.change(func(l *layer.Tree) error { return l.Apply(ctx, plain) })
	if err != nil {
		return err
	}
	// The blob is read to its end, because its digest is compared there.
	_, err = io.Copy(io.Discard, f)
	return err
}

// MountTarget is a path at which something is mounted for a command.
type MountTarget struct {
	Target    string // absolute
	Directory bool
}

// Prepare creates the files that a sandbox needs, and the mount points. It returns the paths of the
// mount points with all links resolved. undo removes the mount points that Prepare has created.
func (t *Tree) Prepare(workingDir string, targets []MountTarget) (at []string, undo func() error, err error) {
	var created []string
	undo = func() error {
		return t.change(func(l *layer.Tree) error {
			for _, name := range slices.Backward(created) {
				if err := l.Drop(name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = t.change(func(l *layer.Tree) error {
		made, err := root.Prepare(l, workingDir)
		if err != nil {
			return err
		}
		for _, name := range made {
			t.made[name] = true
		}
		for _, p := range targets {
			name := strings.TrimPrefix(path.Clean("/"+p.Target), "/")
			missing, err := absent(l, name)
			if err != nil {
				return err
			}
			created = append(created, missing...)
			if p.Directory {
				err = l.MakeStandardDirs(name, 0o755)
			} else {
				err = l.AddMountPoint(name)
			}
			if err != nil {
				return fmt.Errorf("mount at /%s: %w", name, err)
			}
			real, err := l.Resolve(name)
			if err != nil {
				return err
			}
			at = append(at, real)
		}
		return nil
	})
	return at, undo, err
}

// absent returns the parts of a path that do not exist, highest first.
func absent(l *layer.Tree, name string) (list []string, err error) {
	at := ""
	for part := range strings.SplitSeq(name, "/") {
		at = path.Join(at, part)
		exists, err := l.Exists(at)
		if err != nil {
			return nil, err
		}
		if !exists {
			list = append(list, at)
		}
	}
	return list, nil
}

// Resolve returns a path of the stage with all links resolved.
func (t *Tree) Resolve(name string) (at string, err error) {
	l, err := layer.Open(t.Dir, t.limits)
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Resolve(strings.TrimPrefix(path.Clean("/"+name), "/"))
}

// ReadFile reads a file of the stage, following links within the stage.
func (t *Tree) ReadFile(name string, limit int64) ([]byte, error) {
	l, err := layer.Open(t.Dir, t.limits)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.ReadFile(name, limit)
}

// Open opens the tree for reading. Links that lead out of it are not followed.
func (t *Tree) Open() (*os.Root, error) { return os.OpenRoot(t.Dir) }

// Owner returns the owner and the set-id bits of a file, given by its path without links.
func (t *Tree) Owner(name string) fileowners.Owner { return t.owners[path.Clean(name)] }

// Made reports whether a path was created for sandboxes, so that no layer has it.
func (t *Tree) Made(name string) bool { return t.made[name] }

// Remove removes the tree.
func (t *Tree) Remove() error { return layer.RemoveTree(t.Dir) }

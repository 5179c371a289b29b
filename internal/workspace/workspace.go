// Package workspace owns private copies of workspaces, for policies under
// which a sandbox may not even read its owner's directory: what is shown
// inside is a copy that was made before, without what the policy denies.
package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandboxid"
)

// Copies is the directory of all copies.
type Copies struct{ path string }

// New returns the directory, which it makes at the first Make.
func New(path string) *Copies { return &Copies{path} }

func (c *Copies) dir(sandbox string) (string, error) {
	// An ID is part of a path here: nothing but its own alphabet may pass.
	if err := sandboxid.Check(sandbox); err != nil {
		return "", err
	}
	return filepath.Join(c.path, sandbox), nil
}

// Make copies a directory for a sandbox and returns the copy. denied is asked
// about each path below the source, which begins with a slash; what it denies
// is left out, with all below it. More than most bytes are an error, and after
// an error nothing is left.
func (c *Copies) Make(ctx context.Context, sandbox, source string, most int64, denied func(string) bool) (_ string, err error) {
	dir, err := c.dir(sandbox)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(c.path, 0o700); err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove(sandbox))
		}
	}()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	// Through these roots no link leads out of either tree, also if somebody
	// changes the source meanwhile.
	from, err := os.OpenRoot(source)
	if err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	defer from.Close()
	to, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	defer to.Close()
	w := &work{from: from, to: to, left: most, denied: denied}
	err = fs.WalkDir(from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return w.entry(name, d, err)
	})
	if err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	return dir, nil
}

// Find returns the copy that was made for a sandbox.
func (c *Copies) Find(sandbox string) (string, error) {
	dir, err := c.dir(sandbox)
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", errors.Join(fault.New(fault.NotFound, "workspace_copy_gone", "the copy of the workspace is gone"), err)
	}
	return dir, nil
}

// Remove drops a sandbox's copy. One that is not there is success.
func (c *Copies) Remove(sandbox string) error {
	if _, err := c.dir(sandbox); err != nil {
		return err
	}
	root, err := os.OpenRoot(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	defer root.Close()
	if err := root.RemoveAll(sandbox); err != nil {
		return fmt.Errorf("remove workspace: %w", err)
	}
	return nil
}

// List names the sandboxes that have a copy.
func (c *Copies) List() ([]string, error) {
	entries, err := os.ReadDir(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	var list []string
	for _, e := range entries {
		if sandboxid.Valid(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// work is one copy under way.
type work struct {
	from, to *os.Root
	left     int64
	denied   func(string) bool
}

func (w *work) entry(name string, d fs.DirEntry, err error) error {
	var skip error
	if d != nil && d.IsDir() {
		skip = fs.SkipDir
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return skip // gone meanwhile, or not this user's to read
	case err != nil:
		return err
	case name == ".":
		return nil
	}
	inside := path.Join("/", name)
	if w.denied(inside) || d.IsDir() && w.denied(inside+"/x") {
		return skip
	}
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return skip
	}
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		if err := w.to.Mkdir(name, 0o700); err != nil {
			return err
		}
	case mode.IsRegular():
		if err := w.file(name, info); err != nil {
			if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
	case mode&fs.ModeSymlink != 0:
		target, err := w.from.Readlink(name)
		if err != nil {
			return err
		}
		if err := w.to.Symlink(target, name); err != nil {
			return err
		}
		return w.owner(name, info)
	default:
		return nil // a device, a socket or a pipe is no content
	}
	if err := w.owner(name, info); err != nil {
		return err
	}
	// Without the bits that would let a program change its user.
	if err := w.to.Chmod(name, info.Mode()&fs.ModePerm); err != nil {
		return err
	}
	return w.to.Chtimes(name, info.ModTime(), info.ModTime())
}

func (w *work) owner(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return w.to.Lchown(name, int(stat.Uid), int(stat.Gid))
}

func (w *work) file(name string, info fs.FileInfo) (err error) {
	if w.left -= info.Size(); w.left < 0 {
		return fault.New(fault.Exhausted, "workspace_too_large", "the workspace is larger than the sandbox's disk").
			WithHint("raise --disk, or show a smaller directory with --workspace")
	}
	// Nothing that blocks or that is another file by now is read.
	in, err := w.from.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := w.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	// A file that grows meanwhile is cut where it was counted.
	_, err = io.CopyN(out, in, info.Size())
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

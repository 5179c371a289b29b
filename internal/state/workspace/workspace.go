// Package workspace owns private copies of workspaces, for policies under which a sandbox must not
// read its owner's directory. The sandbox sees a copy without the files that the policy denies.
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
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Copies is the directory of all copies.
type Copies struct{ path string }

// New returns the directory, which the first Make creates.
func New(path string) *Copies { return &Copies{path} }

func (c *Copies) dir(sandbox string, part int) (string, error) {
	// The ID becomes part of a path, so it must contain only characters of the ID alphabet.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	if part < 0 || part >= MaxParts {
		return "", fmt.Errorf("copy workspace: %d parts are too many", part)
	}
	return filepath.Join(c.path, partName(sandbox, part)), nil
}

// partName returns the name of a copy. IDs contain no dot.
func partName(sandbox string, part int) string {
	if part == 0 {
		return sandbox
	}
	return sandbox + "." + strconv.Itoa(part)
}

// Make copies a directory for a sandbox and returns the path of the copy. denied is called for each
// path below the source, which begins with a slash. Denied paths are excluded with everything below
// them. More than limit bytes are an error. If Make fails, no copy is left.
func (c *Copies) Make(ctx context.Context, sandbox, source string, limit int64, denied func(string) bool) (string, error) {
	return c.MakePart(ctx, sandbox, 0, source, limit, denied)
}

// MaxParts limits the copies of a sandbox: its workspace, which is part 0, and other directories.
const MaxParts = 32

// MakePart is like Make, for one of several directories. If it fails, no copy of any of them is
// left.
func (c *Copies) MakePart(ctx context.Context, sandbox string, part int, source string, limit int64, denied func(string) bool) (_ string, err error) {
	dir, err := c.dir(sandbox, part)
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
	// These roots prevent links from leading out of either tree, even if another process changes
	// the source during the copy.
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
	w := &copier{from: from, to: to, left: limit, denied: denied}
	err = fs.WalkDir(from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return w.entry(name, d, err)
	})
	if err == nil && part > 0 {
		// The guest makes the sandbox's user the owner of the workspace. This copy needs the right
		// mode, because access(2), which git calls, ignores the capabilities with which that user
		// reads other files.
		err = w.top()
	}
	if err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	return dir, nil
}

// Find returns the copy of a sandbox.
func (c *Copies) Find(sandbox string) (string, error) { return c.FindPart(sandbox, 0) }

// FindPart returns one of several copies.
func (c *Copies) FindPart(sandbox string, part int) (string, error) {
	dir, err := c.dir(sandbox, part)
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return "", errors.Join(fault.New(fault.NotFound, "workspace_copy_gone", "the copy of the workspace is gone"), err)
	}
	return dir, nil
}

// Remove removes a sandbox's copies. It is no error if there are none.
func (c *Copies) Remove(sandbox string) error {
	if _, err := c.dir(sandbox, 0); err != nil {
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
	// Remove the workspace last, because the others are found by it.
	for part := MaxParts - 1; part >= 0; part-- {
		if err := root.RemoveAll(partName(sandbox, part)); err != nil {
			return fmt.Errorf("remove workspace: %w", err)
		}
	}
	return nil
}

// List returns the sandboxes that have a copy.
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
		// A sandbox may have copies of other directories only.
		id, _, _ := strings.Cut(e.Name(), ".")
		if ids.ValidSandbox(id) && !slices.Contains(list, id) {
			list = append(list, id)
		}
	}
	return list, nil
}

// copier is one copy in progress.
type copier struct {
	from, to *os.Root
	left     int64
	denied   func(string) bool
}

func (w *copier) entry(name string, d fs.DirEntry, err error) error {
	var skip error
	if d != nil && d.IsDir() {
		skip = fs.SkipDir
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return skip // removed since it was listed, or not readable by this user
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
		return nil // devices, sockets and pipes are not copied
	}
	if err := w.owner(name, info); err != nil {
		return err
	}
	// Without the setuid and setgid bits.
	if err := w.to.Chmod(name, info.Mode()&fs.ModePerm); err != nil {
		return err
	}
	return w.to.Chtimes(name, info.ModTime(), info.ModTime())
}

// top gives the copy the permissions and times of the directory.
func (w *copier) top() error {
	info, err := w.from.Lstat(".")
	if err != nil {
		return err
	}
	if err := w.owner(".", info); err != nil {
		return err
	}
	return w.to.Chmod(".", info.Mode()&fs.ModePerm)
}

func (w *copier) owner(name string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return w.to.Lchown(name, int(stat.Uid), int(stat.Gid))
}

func (w *copier) file(name string, info fs.FileInfo) (err error) {
	if w.left -= info.Size(); w.left < 0 {
		return fault.New(fault.Exhausted, "workspace_too_large", "the workspace is larger than the sandbox's disk").
			WithHint("raise --disk, or use a smaller directory as --workspace")
	}
	in, err := w.from.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	// A link that replaced the file could lead to a denied file and show it under this name.
	// os.Root follows links within itself despite O_NOFOLLOW, so the opened file is compared with
	// the named one.
	opened, err := in.Stat()
	if err != nil {
		return err
	}
	named, err := w.from.Lstat(name)
	if err != nil {
		return err
	}
	if !opened.Mode().IsRegular() || !os.SameFile(opened, named) {
		return &fs.PathError{Op: "copy", Path: name, Err: fs.ErrNotExist} // the listed file is gone
	}
	out, err := w.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	// A file that grows during the copy is cut at the counted size.
	_, err = io.CopyN(out, in, info.Size())
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

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

// New returns the directory, which it makes at the first Make.
func New(path string) *Copies { return &Copies{path} }

func (c *Copies) dir(sandbox string, part int) (string, error) {
	// An ID is part of a path here: nothing but its own alphabet may pass.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	if part < 0 || part >= MaxParts {
		return "", fmt.Errorf("copy workspace: %d is more parts than are copied", part)
	}
	return filepath.Join(c.path, partName(sandbox, part)), nil
}

// partName is the name of a copy. No ID has a point.
func partName(sandbox string, part int) string {
	if part == 0 {
		return sandbox
	}
	return sandbox + "." + strconv.Itoa(part)
}

// Make copies a directory for a sandbox and returns the copy. denied is asked
// about each path below the source, which begins with a slash; what it denies
// is left out, with all below it. More than most bytes are an error, and after
// an error nothing is left.
func (c *Copies) Make(ctx context.Context, sandbox, source string, most int64, denied func(string) bool) (string, error) {
	return c.MakePart(ctx, sandbox, 0, source, most, denied)
}

// MaxParts bounds what a sandbox has copies of: its workspace, which is part 0, and
// other directories.
const MaxParts = 32

// MakePart is Make for one of several directories. After an error nothing is left of
// any of them.
func (c *Copies) MakePart(ctx context.Context, sandbox string, part int, source string, most int64, denied func(string) bool) (_ string, err error) {
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
	// Through these roots no link leads out of either tree, even if another process
	// changes the source during the copy.
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
	if err == nil && part > 0 {
		// The guest gives the workspace itself to its user. access(2), which git asks,
		// counts none of the rights with which that user reads all else.
		err = w.top()
	}
	if err != nil {
		return "", fmt.Errorf("copy workspace: %w", err)
	}
	return dir, nil
}

// Find returns the copy that was made for a sandbox.
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

// Remove drops a sandbox's copy. One that is not there is success.
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
	// The workspace goes last: while it is there, the others are found by it.
	for part := MaxParts - 1; part >= 0; part-- {
		if err := root.RemoveAll(partName(sandbox, part)); err != nil {
			return fmt.Errorf("remove workspace: %w", err)
		}
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
		// A sandbox may have copies of other directories alone.
		id, _, _ := strings.Cut(e.Name(), ".")
		if ids.ValidSandbox(id) && !slices.Contains(list, id) {
			list = append(list, id)
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

// top gives the copy itself what the directory has.
func (w *work) top() error {
	info, err := w.from.Lstat(".")
	if err != nil {
		return err
	}
	if err := w.owner(".", info); err != nil {
		return err
	}
	return w.to.Chmod(".", info.Mode()&fs.ModePerm)
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
	in, err := w.from.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	// A link that took the file's place could lead to one that the policy denies, and
	// show it under this name. A root follows links within itself in spite of
	// O_NOFOLLOW, so what was opened is compared with what has the name.
	opened, err := in.Stat()
	if err != nil {
		return err
	}
	named, err := w.from.Lstat(name)
	if err != nil {
		return err
	}
	if !opened.Mode().IsRegular() || !os.SameFile(opened, named) {
		return &fs.PathError{Op: "copy", Path: name, Err: fs.ErrNotExist} // the file that was listed is gone
	}
	out, err := w.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	// A file that grows during the copy is cut at the size that was counted.
	_, err = io.CopyN(out, in, info.Size())
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

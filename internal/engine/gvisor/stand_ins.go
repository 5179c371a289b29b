package gvisor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

// isStandIn reports whether a path in the sandbox shows a stand-in.
func isStandIn(spec *engine.Spec, inside string) bool {
	return slices.ContainsFunc(spec.StandIns, func(b engine.Bind) bool { return b.Target == inside })
}

// showStandIns mounts each stand-in over the file that it replaces. If that file does not exist,
// its directory is overlaid with a directory that contains the stand-in.
func (r *bootRequest) showStandIns(root string) error {
	if len(r.StandIns) == 0 {
		return nil
	}
	top, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("root: %w", err)
	}
	defer top.Close()
	var existing []engine.Bind
	missing := map[string][]engine.Bind{} // by the nearest existing parent directory
	for _, b := range r.StandIns {
		if _, err := cleanTarget(root, b.Target); err != nil || b.Target == "/" {
			return errors.Join(fmt.Errorf("a file of a saved memory has no valid path: %q", b.Target), err)
		}
		parent, err := directoryToOverlay(top, b)
		if err != nil {
			return fmt.Errorf("show the copy of %s: %w", b.Target, err)
		}
		if parent == "" {
			existing = append(existing, b)
		} else {
			missing[parent] = append(missing[parent], b)
		}
	}
	// Directories are overlaid before directories below them, and files are mounted last, because
	// an overlaid directory hides earlier mounts in it.
	dirs := slices.SortedFunc(maps.Keys(missing), func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	for i, dir := range dirs {
		if err := r.overlay(root, dir, filepath.Join(r.SandboxDir, fmt.Sprintf("stand-in-%d", i)), missing[dir]); err != nil {
			return fmt.Errorf("show copies of files below %s: %w", dir, err)
		}
	}
	for _, b := range existing {
		if err := mountOver(top, b); err != nil {
			return fmt.Errorf("show the copy of %s: %w", b.Target, err)
		}
	}
	return nil
}

// openBeneath opens a path of the root without following links: gVisor stores its open files by
// paths without links.
func openBeneath(top *os.File, inside string) (*os.File, fs.FileInfo, error) {
	fd, err := unix.Openat2(int(top.Fd()), strings.TrimPrefix(inside, "/"), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), inside)
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// isAbsent reports whether an error means that a path does not exist or is a link.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
}

// directoryToOverlay returns the directory that must be overlaid for a stand-in, or "" if the
// stand-in can be mounted over an existing file.
func directoryToOverlay(top *os.File, b engine.Bind) (dir string, err error) {
	f, info, err := openBeneath(top, b.Target)
	if err == nil {
		f.Close()
		if b.Source == "" && info.IsDir() || b.Source != "" && info.Mode().IsRegular() {
			return "", nil
		}
	}
	if err != nil && !isAbsent(err) {
		return "", err
	}
	return existingParent(top, b.Target)
}

// mountOver mounts a stand-in over an existing file. A stand-in that is a directory needs no mount,
// because the directory exists.
func mountOver(top *os.File, b engine.Bind) error {
	if b.Source == "" {
		return nil
	}
	f, _, err := openBeneath(top, b.Target)
	if err != nil {
		return err
	}
	defer f.Close()
	return showAt(b.Source, f)
}

// existingParent returns the nearest existing directory above a path.
func existingParent(top *os.File, inside string) (string, error) {
	for dir := path.Dir(inside); dir != "/"; dir = path.Dir(dir) {
		f, info, err := openBeneath(top, dir)
		if isAbsent(err) {
			continue
		}
		if err != nil {
			return "", err
		}
		f.Close()
		if info.IsDir() {
			return dir, nil
		}
	}
	return "", errors.New("the file has no existing parent directory")
}

// overlay overlays a directory of the root with a directory that contains the stand-ins.
func (r *bootRequest) overlay(root, dir, layer string, list []engine.Bind) error {
	if err := os.Mkdir(layer, 0o755); err != nil {
		return err
	}
	for _, b := range list {
		at := filepath.Join(layer, strings.TrimPrefix(b.Target, dir))
		if b.Source == "" {
			if err := os.MkdirAll(at, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := linkOrCopy(b.Source, at); err != nil {
			return err
		}
	}
	target := filepath.Join(root, dir)
	if err := copyAttributes(target, layer); err != nil {
		return err
	}
	lower := "lowerdir=" + escapePath(layer) + ":" + escapePath(target)
	if err := unix.Mount("overlay", target, "overlay", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, lower); err != nil {
		return fmt.Errorf("overlay: %w", err)
	}
	// The overlay does not include mounts below the directory, so they are made again.
	for _, b := range r.Root.Binds {
		if b.Target != dir && hostfiles.Below(b.Target, dir) {
			if err := bindReadOnly(b.Source, filepath.Join(root, b.Target)); err != nil {
				return err
			}
		}
	}
	return nil
}

// escapes escapes the characters with a meaning in overlay options.
var escapes = strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`)

// escapePath returns a path in the form that the options of an overlay need.
func escapePath(path string) string { return escapes.Replace(path) }

// linkOrCopy creates a hard link to a file, or copies the file if the link is not possible.
func linkOrCopy(source, at string) error {
	if err := os.Link(source, at); err == nil || !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EMLINK) {
		return err
	}
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	to, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Chmod(info.Mode().Perm()), to.Close())
}

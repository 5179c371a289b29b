package copytree

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stagePrefix is the name prefix of a directory in which a copy is prepared before it is moved to
// its destination.
const stagePrefix = ".crannog-cp-"

// content is the name, in a stage, of the files that go into an existing directory.
const content = "content"

// Stage is a directory beside the destination of a copy. Only its owner may enter it, so that
// another program that can write beside it cannot add files.
type Stage struct {
	target *Target
	name   string
	fd     int
	modes  []lateMode
}

// lateMode is a mode that is set after the copy was moved.
type lateMode struct {
	path []string // from the copy's top
	mode uint32
}

// Begin creates a stage for one copy. An error means that the destination cannot be written.
func Begin(p *Target) (*Stage, error) {
	removeStale(p.dir)
	s := &Stage{target: p, name: stagePrefix + strings.ToLower(rand.Text()[:16])}
	if err := unix.Mkdirat(p.dir, s.name, 0o700); err != nil {
		return nil, fmt.Errorf("write in %s: %w", p.path, err)
	}
	var err error
	if s.fd, err = openDir(p.dir, s.name); err != nil {
		return nil, errors.Join(err, unix.Unlinkat(p.dir, s.name, unix.AT_REMOVEDIR))
	}
	// The lock shows that this process is alive. It is released when the process ends.
	if err := unix.Flock(s.fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Target returns the destination of the copy.
func (s *Stage) Target() *Target { return s.target }

// Close removes the files that were not moved to the destination.
func (s *Stage) Close() {
	// Files that cannot be removed now are removed by the next copy to the same destination.
	_ = removeTree(s.target.dir, s.name)
	_ = unix.Close(s.fd)
}

// staleAfter is the minimum age of a directory that counts as left by a killed process, because a
// new one is not locked yet.
var staleAfter = time.Minute

// removeStale removes stages that killed copies to the same destination have left.
func removeStale(dir int) {
	all, err := names(dir)
	if err != nil {
		return // the directory may be written but not listed
	}
	for _, name := range all {
		if !strings.HasPrefix(name, stagePrefix) {
			continue
		}
		stat, err := statNoFollow(dir, name)
		if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFDIR || int(stat.Uid) != unix.Geteuid() ||
			time.Since(time.Unix(stat.Ctim.Unix())) < staleAfter {
			continue
		}
		fd, err := openDir(dir, name)
		if err != nil {
			continue
		}
		if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeTree(dir, name) // the next copy tries again
		}
		_ = unix.Close(fd)
	}
}

// parents creates the missing directories above the copy. It returns the copy's directory and the
// name in it.
func (s *Stage) parents(o *Owner) (in int, name string, err error) {
	in, err = unix.FcntlInt(uintptr(s.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil || len(s.target.below) == 0 {
		return in, content, err
	}
	last := len(s.target.below) - 1
	for _, part := range s.target.below[:last] {
		next, err := makeDir(in, part, o)
		_ = unix.Close(in) // used only for lookups
		if err != nil {
			return -1, "", err
		}
		in = next
	}
	return in, s.target.below[last], nil
}

// makeDir creates and opens a directory.
func makeDir(in int, name string, o *Owner) (int, error) {
	if err := unix.Mkdirat(in, name, 0o755); err != nil {
		return -1, err
	}
	fd, err := openDir(in, name)
	if err == nil && o != nil {
		err = unix.Fchown(fd, int(o.UID), int(o.GID))
	}
	return fd, err
}

// later records a mode to set after the copy was moved.
func (s *Stage) later(path []string, mode uint32) {
	s.modes = append(s.modes, lateMode{path, mode})
}

// commit moves the copy to its destination. It checks for conflicts before it moves anything.
func (s *Stage) commit() error {
	from, to := s.fd, s.target.dir
	name, target := content, "."
	if len(s.target.below) > 0 {
		name = s.target.below[0]
		target = name
	}
	if target == "." {
		sub, err := openDir(from, name)
		if err != nil {
			return s.pathError(s.target.path, err)
		}
		defer unix.Close(sub)
		for _, check := range []bool{true, false} {
			if err := s.merge(sub, to, s.target.path, check); err != nil {
				return err
			}
		}
		return s.setModes(to, nil)
	}
	if _, err := statNoFollow(from, name); errors.Is(err, unix.ENOENT) {
		return nil // everything in the source was left out
	}
	for _, check := range []bool{true, false} {
		if err := s.move(from, to, name, s.target.path, check); err != nil {
			return err
		}
	}
	return s.setModes(to, s.target.below)
}

// merge moves the content of a directory into another one.
func (s *Stage) merge(from, to int, path string, check bool) error {
	all, err := names(from)
	if err != nil {
		return err
	}
	if check && len(all) > 0 {
		if err := unix.Faccessat(to, ".", unix.W_OK|unix.X_OK, unix.AT_EACCESS); errors.Is(err, unix.EACCES) || errors.Is(err, unix.EROFS) {
			return s.pathError(path, err)
		}
	}
	for _, name := range all {
		if err := s.move(from, to, name, path, check); err != nil {
			return err
		}
	}
	return nil
}

// move moves one file or directory, or checks whether that is possible. Files and links replace
// files and links, directories are merged, and nothing is written through a link.
func (s *Stage) move(from, to int, name, path string, check bool) error {
	path += "/" + name
	staged, err := statNoFollow(from, name)
	if err != nil {
		return err
	}
	existing, err := statNoFollow(to, name)
	if errors.Is(err, unix.ENOENT) {
		if check {
			return nil
		}
		return s.pathError(path, unix.Renameat(from, name, to, name))
	}
	if err != nil {
		return s.pathError(path, err)
	}
	const dir = unix.S_IFDIR
	isDir, wasDir := staged.Mode&unix.S_IFMT == dir, existing.Mode&unix.S_IFMT == dir
	switch {
	case isDir && !wasDir:
		return s.pathError(path, unix.ENOTDIR)
	case !isDir && wasDir:
		return s.pathError(path, unix.EISDIR)
	case !isDir && check:
		return nil
	case !isDir:
		return s.pathError(path, unix.Renameat(from, name, to, name))
	}
	a, err := openDir(from, name)
	if err != nil {
		return s.pathError(path, err)
	}
	defer unix.Close(a)
	b, err := openDir(to, name)
	if err != nil {
		return s.pathError(path, err)
	}
	defer unix.Close(b)
	return s.merge(a, b, path, check)
}

// pathError adds the path to an error.
func (s *Stage) pathError(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// setModes sets the modes of directories that could not have been moved with these modes, deepest
// first.
func (s *Stage) setModes(top int, below []string) error {
	for _, m := range s.modes {
		path := slices.Concat(below, m.path)
		if len(path) == 0 {
			continue // the directory existed before
		}
		if err := setMode(top, path, m.mode); err != nil {
			return s.pathError(strings.Join(path, "/"), err)
		}
	}
	return nil
}

// setMode sets the mode of a directory at a path below an open one.
func setMode(in int, path []string, mode uint32) error {
	fd, err := openDir(in, path[0])
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if len(path) > 1 {
		return setMode(fd, path[1:], mode)
	}
	return unix.Fchmod(fd, mode)
}

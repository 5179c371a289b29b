// Package rootpath owns the lookup of paths in a sandbox's root while the host builds it. A
// symbolic link in a workspace leads to files of the sandbox and never to files of the host.
package rootpath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Location is a file or directory in a sandbox's root.
type Location struct {
	File *os.File // opened with O_PATH
	// Inside is the path in the root, with all links resolved.
	Inside    string
	Directory bool
	Link      bool
}

// Close closes the file of a location. For the zero location it does nothing.
func (l Location) Close() {
	if l.File != nil {
		_ = l.File.Close() // nothing was written to it
	}
}

// hiddenPaths are mounted later, or served by the sandbox's kernel itself. Files of the root at
// these paths are never visible, so covering them would have no effect.
var hiddenPaths = []string{"/proc", "/sys", "/dev"}

// maxRetries bounds the repetitions of a lookup that failed because of a race.
const maxRetries = 1000

// Open finds a path as a program in the sandbox would. The flags are added to those of open(2).
// After an error nothing is open.
func Open(root *os.File, path string, flags uint64) (_ Location, err error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return Location{}, errors.New("not a clean absolute path below the root")
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | flags, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(root.Fd()), path, &how)
	// The lookup of ".." fails while a file or mount anywhere on the machine is moved.
	for n := 0; n < maxRetries && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); n++ {
		fd, err = unix.Openat2(int(root.Fd()), path, &how)
	}
	if err != nil {
		return Location{}, err
	}
	p := Location{File: os.NewFile(uintptr(fd), path)}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	info, err := p.File.Stat()
	if err != nil {
		return Location{}, err
	}
	p.Directory, p.Link = info.IsDir(), info.Mode()&fs.ModeSymlink != 0
	fullPath, err := nameOf(p.File)
	if err != nil {
		return Location{}, err
	}
	base, err := nameOf(root)
	if err != nil {
		return Location{}, err
	}
	p.Inside = strings.TrimPrefix(fullPath, base)
	if p.Inside == fullPath || !filepath.IsAbs(p.Inside) ||
		slices.ContainsFunc(hiddenPaths, func(s string) bool { return p.Inside == s || strings.HasPrefix(p.Inside, s+"/") }) {
		return Location{}, errors.New("not in the sandbox's files")
	}
	return p, nil
}

// nameOf returns the kernel's path of an open file.
func nameOf(f *os.File) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

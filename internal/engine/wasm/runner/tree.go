package runner

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/experimental/sysfs"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// hiddenDirs are directories of the root that modules do not see. /proc gives access to the
// runner's own memory: a module that writes there would escape from WebAssembly.
var hiddenDirs = []string{"proc", "sys", ".crannog"}

// tree is the module's view of the sandbox's files: the directories of the root, each opened
// separately.
type tree struct {
	dirs []*directory
}

// openTree opens the directories that the user may enter.
func openTree(deterministic bool) (*tree, error) {
	entries, err := os.ReadDir("/")
	if err != nil {
		return nil, err
	}
	t := &tree{}
	for _, e := range entries {
		if !e.IsDir() || slices.Contains(hiddenDirs, e.Name()) {
			continue
		}
		path := "/" + e.Name()
		root, err := os.OpenRoot(path)
		if errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.dirs = append(t.dirs, &directory{root: root, path: path, deterministic: deterministic})
	}
	return t, nil
}

// paths returns the directories that stay accessible to the process.
func (t *tree) paths() (list []string) {
	for _, d := range t.dirs {
		list = append(list, d.path)
	}
	return list
}

// mounts returns the directories by path, and the working directory as "/", where programs in C and
// Rust look up relative paths.
func (t *tree) mounts(dir string) wazero.FSConfig {
	config := wazero.NewFSConfig()
	mount := func(d *directory, path string) {
		config = config.(sysfs.FSConfig).WithSysFSMount(d, path) //nolint:forcetypeassert // as wazero's own example does
	}
	for _, d := range t.dirs {
		mount(d, d.path)
	}
	for _, d := range t.dirs {
		below, found := strings.CutPrefix(dir+"/", d.path+"/")
		if !found {
			continue
		}
		if root, err := d.root.OpenRoot(filepath.Clean("./" + below)); err == nil {
			mount(&directory{root: root, path: dir, deterministic: d.deterministic}, "/")
		}
	}
	return config
}

// directory is a directory that a module sees. No path leads out of it, regardless of links,
// because os.Root resolves each part of a path itself.
type directory struct {
	experimental.UnimplementedFS
	root          *os.Root
	path          string // path in the sandbox
	deterministic bool
}

// name converts a path to one that os.Root accepts. wazero puts a slash before paths below a
// directory that was opened as ".".
func name(path string) string {
	if path = strings.Trim(path, "/"); path == "" {
		return "."
	}
	return path
}

// code returns the WASI error number of an error. The error of os.Root for a path that leads out of
// its directory has no number.
func code(err error) experimental.Errno {
	if path, ok := errors.AsType[*fs.PathError](err); ok && path.Err.Error() == "path escapes from parent" {
		return experimental.EPERM
	}
	if link, ok := errors.AsType[*os.LinkError](err); ok && link.Err.Error() == "path escapes from parent" {
		return experimental.EPERM
	}
	return experimental.UnwrapOSError(err)
}

// stat converts file information. In deterministic mode, times and numbers are derived from the
// path.
func (d *directory) stat(info fs.FileInfo, err error, path string) (sys.Stat_t, experimental.Errno) {
	if err != nil {
		return sys.Stat_t{}, code(err)
	}
	st := sys.NewStat_t(info)
	if d.deterministic {
		sum := fnv.New64a()
		_, _ = fmt.Fprint(sum, filepath.Join(d.path, name(path))) // writing to a hash does not fail
		st.Dev, st.Ino = 1, sum.Sum64()
		st.Atim, st.Mtim, st.Ctim = epoch, epoch, epoch
		if info.IsDir() {
			st.Nlink, st.Size = 1, 0
		}
	}
	return st, 0
}

// Stat implements experimental.FS.
func (d *directory) Stat(path string) (sys.Stat_t, experimental.Errno) {
	info, err := d.root.Stat(name(path))
	return d.stat(info, err, path)
}

// Lstat implements experimental.FS.
func (d *directory) Lstat(path string) (sys.Stat_t, experimental.Errno) {
	info, err := d.root.Lstat(name(path))
	return d.stat(info, err, path)
}

// Mkdir implements experimental.FS.
func (d *directory) Mkdir(path string, perm fs.FileMode) experimental.Errno {
	return code(d.root.Mkdir(name(path), perm.Perm()))
}

// Chmod implements experimental.FS.
func (d *directory) Chmod(path string, perm fs.FileMode) experimental.Errno {
	return code(d.root.Chmod(name(path), perm.Perm()))
}

// Rename implements experimental.FS.
func (d *directory) Rename(from, to string) experimental.Errno {
	return code(d.root.Rename(name(from), name(to)))
}

// Rmdir implements experimental.FS.
func (d *directory) Rmdir(path string) experimental.Errno {
	info, err := d.root.Lstat(name(path))
	if err != nil {
		return code(err)
	}
	if !info.IsDir() {
		return experimental.ENOTDIR
	}
	return code(d.root.Remove(name(path)))
}

// Unlink implements experimental.FS.
func (d *directory) Unlink(path string) experimental.Errno {
	info, err := d.root.Lstat(name(path))
	if err != nil {
		return code(err)
	}
	if info.IsDir() {
		return experimental.EISDIR
	}
	return code(d.root.Remove(name(path)))
}

// Link implements experimental.FS.
func (d *directory) Link(from, to string) experimental.Errno {
	return code(d.root.Link(name(from), name(to)))
}

// Symlink implements experimental.FS. WASI refuses links to absolute paths. Other links may point
// anywhere, but none is followed out of the directory.
func (d *directory) Symlink(target, link string) experimental.Errno {
	if filepath.IsAbs(target) {
		return experimental.EPERM
	}
	return code(d.root.Symlink(target, name(link)))
}

// Readlink implements experimental.FS.
func (d *directory) Readlink(path string) (string, experimental.Errno) {
	target, err := d.root.Readlink(name(path))
	return target, code(err)
}

// Utimens implements experimental.FS.
func (d *directory) Utimens(path string, atim, mtim int64) experimental.Errno {
	return code(d.root.Chtimes(name(path), timeOf(atim), timeOf(mtim)))
}

// timeOf converts nanoseconds to a time. The zero time stands for one that does not change.
func timeOf(ns int64) time.Time {
	if ns == experimental.UTIME_OMIT {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// OpenFile implements experimental.FS.
func (d *directory) OpenFile(path string, flag experimental.Oflag, perm fs.FileMode) (experimental.File, experimental.Errno) {
	if flag&experimental.O_NOFOLLOW != 0 {
		if info, err := d.root.Lstat(name(path)); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, experimental.ELOOP
		}
	}
	f, err := d.root.OpenFile(name(path), flags(flag), perm.Perm())
	if err != nil {
		return nil, code(err)
	}
	return &file{dir: d, path: path, f: f, append: flag&experimental.O_APPEND != 0}, 0
}

// flags converts flags of WASI to those of the kernel.
func flags(flag experimental.Oflag) int {
	out := os.O_RDONLY
	switch flag & (experimental.O_RDWR | experimental.O_WRONLY) { //nolint:exhaustive // the other flags follow
	case experimental.O_RDWR:
		out = os.O_RDWR
	case experimental.O_WRONLY:
		out = os.O_WRONLY
	}
	for _, f := range []struct {
		wasi   experimental.Oflag
		kernel int
	}{
		{experimental.O_APPEND, os.O_APPEND}, {experimental.O_CREAT, os.O_CREATE}, {experimental.O_EXCL, os.O_EXCL},
		{experimental.O_TRUNC, os.O_TRUNC}, {experimental.O_DIRECTORY, unix.O_DIRECTORY}, {experimental.O_SYNC, os.O_SYNC},
		{experimental.O_DSYNC, unix.O_DSYNC}, {experimental.O_NONBLOCK, unix.O_NONBLOCK},
	} {
		if flag&f.wasi != 0 {
			out |= f.kernel
		}
	}
	return out
}

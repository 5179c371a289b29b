package volume

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Attributes are the owner and the permissions of a file. A nil field of a new file means the
// sandbox's user and the usual permissions.
type Attributes struct {
	UID, GID, Mode *uint32
}

// permissions are the bits of a mode that a caller may set. Set-id bits would give programs of the
// host rights if the file system were ever mounted without nosuid.
const permissions = 0o1777

// apply sets attributes. Without root, the owner of all files is the server's user.
func (a Attributes) apply(file *os.File) error {
	if a.Mode != nil {
		if err := unix.Fchmod(int(file.Fd()), *a.Mode&permissions); err != nil {
			return err
		}
	}
	if a.UID == nil && a.GID == nil || os.Geteuid() != 0 {
		return nil
	}
	id := func(p *uint32) int {
		if p == nil {
			return -1
		}
		return int(*p)
	}
	return unix.Fchown(int(file.Fd()), id(a.UID), id(a.GID))
}

// orDefault returns the attributes of a new file.
func (a Attributes) orDefault(mode uint32) Attributes {
	user := uint32(UserID)
	for _, field := range []struct {
		to  **uint32
		def *uint32
	}{{&a.UID, &user}, {&a.GID, &user}, {&a.Mode, &mode}} {
		if *field.to == nil {
			*field.to = field.def
		}
	}
	return a
}

// SetAttributes changes the attributes of a file or directory.
func (f *Files) SetAttributes(name string, a Attributes) error {
	file, err := f.open(name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	return failure(name, a.apply(file))
}

// MakeDir creates a directory. With parents it also creates the directories above, and accepts an
// existing one.
func (f *Files) MakeDir(name string, a Attributes, parents bool) error {
	rel, err := clean(name)
	if err != nil || rel == "." {
		return errors.Join(err, existing(rel, parents))
	}
	if parents {
		if above := path.Dir(rel); above != "." {
			if err := f.MakeDir(above, Attributes{}, true); err != nil {
				return err
			}
		}
	}
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Mkdirat(int(dir.Fd()), base, 0o700); err != nil {
		if e, lost := f.Stat(name); parents && errors.Is(err, unix.EEXIST) && lost == nil && e.Type == Directory {
			return nil
		}
		return failure(name, err)
	}
	made, err := openat2(dir, base, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return failure(name, err)
	}
	defer made.Close()
	return failure(name, errors.Join(a.orDefault(0o755).apply(made), made.Sync(), dir.Sync()))
}

func existing(rel string, parents bool) error {
	if rel != "." || parents {
		return nil
	}
	return failure("/", unix.EEXIST)
}

// Read opens a regular file.
func (f *Files) Read(name string) (*os.File, error) {
	file, err := f.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.Newf(fault.Invalid, "volume_path_invalid", "the path %.200q in the volume is not a regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Write stores a file. Readers see the old or the whole new content, and the new content is on the
// disk when Write returns. Without replace, an existing file is not changed.
func (f *Files) Write(name string, from io.Reader, a Attributes, replace bool) (err error) {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if e, err := describe(dir, base, name); err == nil {
		if !replace {
			return failure(name, unix.EEXIST)
		}
		if e.Type == Directory {
			return failure(name, unix.EISDIR)
		}
	}
	draft := ".crannog-" + ids.NewToken()
	file, err := openat2(dir, draft, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return failure(name, err)
	}
	named := false
	defer func() {
		err = errors.Join(err, file.Close())
		if !named {
			err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), draft, 0))
		}
	}()
	if _, err := io.Copy(file, from); err != nil {
		return failure(name, err)
	}
	if err := errors.Join(a.orDefault(0o644).apply(file), file.Sync()); err != nil {
		return failure(name, err)
	}
	flags := uint(unix.RENAME_NOREPLACE)
	if replace {
		flags = 0
	}
	if err := unix.Renameat2(int(dir.Fd()), draft, int(dir.Fd()), base, flags); err != nil {
		return failure(name, err)
	}
	named = true
	return failure(name, dir.Sync())
}

// Remove removes a file, or a directory with everything in it.
func (f *Files) Remove(name string) error {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if _, err := describe(dir, base, name); err != nil {
		return err
	}
	// The directory is already resolved. Root follows no link out of it, and RemoveAll none at all.
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(base); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failure(name, err)
	}
	return failure(name, dir.Sync())
}

// link creates a symbolic link, which the host never follows.
func (f *Files) link(name, target string) error {
	dir, base, err := f.parent(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := unix.Symlinkat(target, int(dir.Fd()), base); err != nil {
		return failure(name, err)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return failure(name, unix.Fchownat(int(dir.Fd()), base, UserID, UserID, unix.AT_SYMLINK_NOFOLLOW))
}

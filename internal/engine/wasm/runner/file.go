package runner

import (
	"cmp"
	"errors"
	"io"
	"os"
	"slices"
	"unsafe"

	experimental "github.com/tetratelabs/wazero/experimental/sys"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/sys/unix"
)

// file is an open file of a module.
type file struct {
	experimental.UnimplementedFile
	dir    *directory
	path   string
	f      *os.File
	append bool
	// entries holds the entries of a directory that the module has not read yet. listed is set once
	// the directory was read. It is read as a whole, so that the entries can be sorted.
	entries []experimental.Dirent
	listed  bool
}

// Stat implements experimental.File.
func (f *file) Stat() (sys.Stat_t, experimental.Errno) {
	info, err := f.f.Stat()
	return f.dir.stat(info, err, f.path)
}

// Dev implements experimental.File.
func (f *file) Dev() (uint64, experimental.Errno) {
	st, errno := f.Stat()
	return st.Dev, errno
}

// Ino implements experimental.File.
func (f *file) Ino() (sys.Inode, experimental.Errno) {
	st, errno := f.Stat()
	return st.Ino, errno
}

// IsDir implements experimental.File.
func (f *file) IsDir() (bool, experimental.Errno) {
	st, errno := f.Stat()
	return st.Mode.IsDir(), errno
}

// IsAppend implements experimental.File.
func (f *file) IsAppend() bool { return f.append }

// SetAppend implements experimental.File.
func (f *file) SetAppend(on bool) experimental.Errno {
	flags, err := unix.FcntlInt(f.f.Fd(), unix.F_GETFL, 0)
	if err == nil {
		flags &^= unix.O_APPEND
		if on {
			flags |= unix.O_APPEND
		}
		_, err = unix.FcntlInt(f.f.Fd(), unix.F_SETFL, flags)
	}
	if err == nil {
		f.append = on
	}
	return code(err)
}

// result converts the result of a read or a write. The end of a file is not an error.
func result(n int, err error) (int, experimental.Errno) {
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, code(err)
}

// Read implements experimental.File.
func (f *file) Read(b []byte) (int, experimental.Errno) { return result(f.f.Read(b)) }

// Pread implements experimental.File.
func (f *file) Pread(b []byte, off int64) (int, experimental.Errno) {
	if off < 0 {
		return 0, experimental.EINVAL
	}
	return result(f.f.ReadAt(b, off))
}

// Write implements experimental.File.
func (f *file) Write(b []byte) (int, experimental.Errno) { return result(f.f.Write(b)) }

// Pwrite implements experimental.File.
func (f *file) Pwrite(b []byte, off int64) (int, experimental.Errno) {
	if off < 0 {
		return 0, experimental.EINVAL
	}
	return result(unix.Pwrite(int(f.f.Fd()), b, off))
}

// position is an offset in a file. The type avoids a warning of go vet, which expects a method Seek
// with an int64 to implement io.Seeker.
type position = int64

// Seek implements experimental.File.
func (f *file) Seek(offset position, whence int) (position, experimental.Errno) {
	if whence < io.SeekStart || whence > io.SeekEnd {
		return 0, experimental.EINVAL
	}
	isDir, errno := f.IsDir()
	if errno != 0 {
		return 0, errno
	}
	if isDir {
		if offset != 0 || whence != io.SeekStart {
			return 0, experimental.EISDIR
		}
		f.listed, f.entries = false, nil
	}
	position, err := f.f.Seek(offset, whence)
	return position, code(err)
}

// Readdir implements experimental.File.
func (f *file) Readdir(n int) ([]experimental.Dirent, experimental.Errno) {
	if !f.listed {
		if errno := f.list(); errno != 0 {
			return nil, errno
		}
	}
	if n <= 0 || n > len(f.entries) {
		n = len(f.entries)
	}
	next := f.entries[:n]
	f.entries = f.entries[n:]
	return next, 0
}

// list reads the directory.
func (f *file) list() experimental.Errno {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return code(err)
	}
	entries, err := f.f.ReadDir(-1)
	if err != nil {
		return code(err)
	}
	f.listed, f.entries = true, make([]experimental.Dirent, 0, len(entries))
	for _, e := range entries {
		entry := experimental.Dirent{Name: e.Name(), Type: e.Type()}
		if st, errno := f.dir.Lstat(name(f.path) + "/" + e.Name()); errno == 0 {
			entry.Ino = st.Ino
		}
		f.entries = append(f.entries, entry)
	}
	slices.SortFunc(f.entries, func(a, b experimental.Dirent) int { return cmp.Compare(a.Name, b.Name) })
	return 0
}

// Truncate implements experimental.File.
func (f *file) Truncate(size int64) experimental.Errno {
	if size < 0 {
		return experimental.EINVAL
	}
	return code(f.f.Truncate(size))
}

// Sync implements experimental.File.
func (f *file) Sync() experimental.Errno { return code(f.f.Sync()) }

// Datasync implements experimental.File.
func (f *file) Datasync() experimental.Errno { return code(unix.Fdatasync(int(f.f.Fd()))) }

// Utimens implements experimental.File.
func (f *file) Utimens(atim, mtim int64) experimental.Errno {
	spec := func(ns int64) unix.Timespec {
		if ns == experimental.UTIME_OMIT {
			return unix.Timespec{Nsec: unix.UTIME_OMIT}
		}
		return unix.NsecToTimespec(ns)
	}
	times := [2]unix.Timespec{spec(atim), spec(mtim)}
	// Without a path, the call uses the descriptor.
	if _, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, f.f.Fd(), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0); errno != 0 {
		return code(errno)
	}
	return 0
}

// Close implements experimental.File.
func (f *file) Close() experimental.Errno { return code(f.f.Close()) }

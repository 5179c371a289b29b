package unpack

import (
	"archive/tar"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxDepth limits how many directories are open at the same time.
const maxDepth = 200

// tree has the root and keeps the directories of the last entry open, because the next entry
// usually is in the same ones.
type tree struct {
	root    *os.Root
	dirs    []dir // from the root
	times   []dirTime
	deleted map[string]bool // names that an earlier entry has deleted
	owners  bool            // whether the owners of files are set
}

type dir struct {
	name string // in its parent directory
	fd   int
	dev  uint64 // subdirectories on another device are mount points
}

func openTree(root string) (*tree, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(root, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "open", Path: root, Err: err}, r.Close())
	}
	t := &tree{root: r, dirs: []dir{{fd: fd}}, deleted: map[string]bool{}, owners: os.Geteuid() == 0}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.close()
		return nil, &os.PathError{Op: "stat", Path: root, Err: err}
	}
	t.dirs[0].dev = stat.Dev
	return t, nil
}

func (t *tree) close() {
	t.up(0)
	_ = t.root.Close() // nothing is written through it
}

// up closes all open directories except the first n.
func (t *tree) up(n int) {
	for _, d := range t.dirs[n:] {
		_ = unix.Close(d.fd) // nothing is written through it
	}
	t.dirs = t.dirs[:n]
}

// closeBelow closes a directory that is about to be removed, and those below it.
func (t *tree) closeBelow(name string) {
	parts := strings.Split(name, "/")
	if t.commonPrefix(parts) == len(parts) {
		t.up(len(parts))
	}
}

// commonPrefix returns how many of the parts are open.
func (t *tree) commonPrefix(parts []string) int {
	n := 0
	for n < len(parts) && n+1 < len(t.dirs) && t.dirs[n+1].name == parts[n] {
		n++
	}
	return n
}

// parent opens the parent directory of name. It stays open until another name is requested.
func (t *tree) parent(name string) (fd int, base string, err error) {
	parts := strings.Split(name, "/")
	above, base := parts[:len(parts)-1], parts[len(parts)-1]
	if len(above) > maxDepth {
		return -1, "", fmt.Errorf("it is more than %d directories deep", maxDepth)
	}
	n := t.commonPrefix(above)
	t.up(n + 1)
	for _, part := range above[n:] {
		fd, dev, err := openDirectory(t.dirs[len(t.dirs)-1].fd, part)
		if err != nil {
			return -1, "", err
		}
		t.dirs = append(t.dirs, dir{part, fd, dev})
	}
	return t.dirs[len(t.dirs)-1].fd, base, nil
}

// openDirectory opens a directory, but not a link to one. gVisor follows a link despite O_NOFOLLOW
// if O_DIRECTORY is set too, so the opened file is compared with the file of that name.
func openDirectory(in int, base string) (fd int, dev uint64, err error) {
	named, err := stat(in, base)
	if err != nil {
		return -1, 0, err
	}
	if named == nil {
		return -1, 0, unix.ENOENT
	}
	if named.Mode&unix.S_IFMT != unix.S_IFDIR {
		return -1, 0, unix.ENOTDIR
	}
	fd, err = unix.Openat(in, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, 0, err
	}
	var opened unix.Stat_t
	err = unix.Fstat(fd, &opened)
	if err == nil && (opened.Dev != named.Dev || opened.Ino != named.Ino) {
		err = unix.ELOOP
	}
	if err != nil {
		_ = unix.Close(fd) // nothing is written through it
		return -1, 0, err
	}
	return fd, opened.Dev, nil
}

// stat returns nil if the file does not exist.
func stat(in int, base string) (*unix.Stat_t, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(in, base, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return &stat, err
}

// chown sets the owner of an open file, or of the file with a name in an open directory. A guest that
// is not root owns all files that it unpacks, as tar does.
func (t *tree) chown(fd int, base string, h *tar.Header) error {
	if !t.owners {
		return nil
	}
	if base == "" {
		return unix.Fchown(fd, h.Uid, h.Gid)
	}
	return unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW)
}

// setMetadata sets the owner, the attributes and then the mode, because a change of owner clears
// some mode bits.
func (t *tree) setMetadata(fd int, h *tar.Header) error {
	if err := t.chown(fd, "", h); err != nil {
		return err
	}
	for key, value := range h.PAXRecords {
		if err := attribute(fd, key, value); err != nil {
			return err
		}
	}
	return unix.Fchmod(fd, permission(h))
}

// recordPrefix is the prefix of PAX records that are attributes.
const recordPrefix = "SCHILY.xattr."

// attribute sets an extended attribute. It skips the attributes of overlayfs.
func attribute(fd int, key, value string) error {
	name, ok := strings.CutPrefix(key, recordPrefix)
	if !ok || strings.HasPrefix(name, "trusted.overlay.") || strings.HasPrefix(name, "user.overlay.") {
		return nil
	}
	data := []byte(value)
	if strings.HasPrefix(name, "system.posix_acl_") {
		plain, err := base64.RawStdEncoding.DecodeString(value)
		if err != nil {
			return fmt.Errorf("the attribute %.60q: %w", name, err)
		}
		data = plain
	}
	err := unix.Fsetxattr(fd, name, data, 0)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EPERM) {
		return nil // the kernel does not support the attribute, or the user may not set it
	}
	return err
}

// opaque reports whether a directory hides the directory below it in the overlay.
func opaque(h *tar.Header) bool {
	for _, space := range []string{"trusted", "user"} {
		if h.PAXRecords[recordPrefix+space+".overlay.opaque"] == "y" {
			return true
		}
	}
	return false
}

// setTime sets the modification time of a file.
func setTime(in int, base string, at time.Time) error {
	stamp, err := unix.TimeToTimespec(at)
	if err != nil {
		return nil // a time that no file can have
	}
	return unix.UtimesNanoAt(in, base, []unix.Timespec{{Nsec: unix.UTIME_OMIT}, stamp}, unix.AT_SYMLINK_NOFOLLOW)
}

// block is the block size of the file system.
const block = 4 << 10

// fill writes the content and leaves holes for blocks of zeros. The file then needs no more disk
// space than before it was packed.
func fill(f *os.File, content io.Reader) error {
	var buffer [16 * block]byte
	var size int64
	for {
		n, err := io.ReadFull(content, buffer[:])
		for at := 0; at < n; at += block {
			piece := buffer[at:min(at+block, n)]
			if allZero(piece) {
				continue
			}
			if _, err := f.WriteAt(piece, size+int64(at)); err != nil {
				return err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF) && n > 0 && ended(content):
			return f.Truncate(size)
		case err != nil:
			return err
		}
	}
}

// ended handles a short read, which must be the last of a file and not the end of the archive.
func ended(content io.Reader) bool {
	n, err := content.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, io.EOF)
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

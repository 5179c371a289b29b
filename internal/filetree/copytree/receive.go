package copytree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
)

// Options configure how a copy is written.
type Options struct {
	// Owner is the owner of all files. Nil is the user of this process.
	Owner *Owner
	// KeepOwners gives each file the numeric owner that it had at the source.
	KeepOwners bool
	// Confine leaves out symbolic links that lead out of the copy, and preserves free space on the
	// disk. It is for copies out of a sandbox, which chooses the links' targets and the files'
	// sizes.
	Confine bool
}

// Owner is a user and a group.
type Owner struct{ UID, GID uint32 }

// Summary counts what a copy contains.
type Summary struct {
	Files       int   `json:"files"`
	Directories int   `json:"directories"`
	Links       int   `json:"links"`
	Bytes       int64 `json:"bytes"`
	LeftOut     int   `json:"left_out"`
	// Outward counts links that were left out because they lead out of the copy. LeftOut includes
	// them.
	Outward int `json:"outward,omitempty"`
}

// CodeDiskFull is the code of the error if a copy would fill the destination's disk.
const CodeDiskFull = "copy_disk_full"

// Receive writes a stream. It moves the copy into place when it is complete, so that an interrupted
// copy leaves nothing.
func (s *Stage) Receive(ctx context.Context, in Frames, o Options) (Summary, error) {
	r := &receiver{ctx: ctx, in: in, options: o, stage: s}
	if o.Confine {
		var err error
		if r.space, err = newSpaceLimit(s.target.dir); err != nil {
			return r.sum, err
		}
	}
	if err := r.all(); err != nil {
		return r.sum, full(err)
	}
	// The rest takes about as long for a large copy as for a small one, and is not interrupted.
	if err := context.Cause(ctx); err != nil {
		return r.sum, err
	}
	return r.sum, full(s.commit())
}

// full adds the code CodeDiskFull to an error of a full disk.
func full(err error) error {
	if diskroom.Full(err) {
		return fault.New(fault.Exhausted, CodeDiskFull, "the disk is full").WithHint("the incomplete copy was removed; free disk space, or copy less")
	}
	return err
}

// receiver is the state of one call of Receive.
type receiver struct {
	ctx     context.Context
	in      Frames
	options Options
	stage   *Stage
	space   *spaceLimit // nil means no limits
	dirs    []opened
	file    *os.File
	entry   *Entry // of file
	sum     Summary
}

// opened is a directory that is being filled.
type opened struct {
	fd    int
	entry *Entry
}

// all writes the whole stream into the stage.
func (r *receiver) all() (err error) {
	defer func() {
		for _, d := range r.dirs {
			_ = unix.Close(d.fd) // the writes were checked before
		}
		if r.file != nil {
			err = errors.Join(err, r.file.Close())
		}
	}()
	top, name, err := r.stage.parents(r.options.Owner)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	for {
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
		f, err := r.in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case f.Entry != nil && len(r.dirs) == 0:
			f.Entry.Name = name // the source's own name is not used
			err = r.begin(top, f.Entry)
		case f.Entry != nil:
			err = r.begin(r.dirs[len(r.dirs)-1].fd, f.Entry)
		case f.End:
			err = r.end()
		default:
			err = r.data(f)
		}
		if err != nil {
			return err
		}
	}
}

// begin creates the file of an entry.
func (r *receiver) begin(in int, e *Entry) error {
	switch e.Kind {
	case Dir:
		if err := r.space.take(block); err != nil {
			return err
		}
		if err := unix.Mkdirat(in, e.Name, 0o700); err != nil {
			return named(e, err)
		}
		fd, err := openDir(in, e.Name)
		if err != nil {
			return named(e, err)
		}
		r.dirs = append(r.dirs, opened{fd, e})
		r.sum.Directories++
	case File:
		fd, err := unix.Openat(in, e.Name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return named(e, err)
		}
		r.file, r.entry = os.NewFile(uintptr(fd), e.Name), e
		r.sum.Files++
		r.sum.Bytes += e.Size
		return r.space.take(block)
	case Link:
		if r.options.Confine && !staysInside(e.Target, len(r.dirs)-1) {
			r.sum.LeftOut++
			r.sum.Outward++
			return nil
		}
		if err := r.space.take(block); err != nil {
			return err
		}
		r.sum.Links++
		return r.link(in, e)
	case LeftOut:
		r.sum.LeftOut++
	}
	return nil
}

// staysInside reports whether a link stays within the copy when it is followed. It may go up at
// most to the copy's top, and only at its beginning, because a name before a later ".." may be a
// link.
func staysInside(target string, depth int) bool {
	if strings.HasPrefix(target, "/") {
		return false
	}
	up := true
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			up = false
		case !up || depth <= 0:
			return false
		default:
			depth--
		}
	}
	return true
}

// data writes a piece of the open file.
func (r *receiver) data(f Frame) error {
	if err := r.space.take(int64(len(f.Data))); err != nil {
		return err
	}
	if _, err := r.file.WriteAt(f.Data, f.Offset); err != nil {
		return named(r.entry, err)
	}
	return nil
}

// end ends the open file or directory.
func (r *receiver) end() error {
	if r.file != nil {
		f, e := r.file, r.entry
		r.file, r.entry = nil, nil
		err := f.Truncate(e.Size)
		if err == nil {
			err = r.describe(int(f.Fd()), e, e.Mode&0o777)
		}
		return named(e, errors.Join(err, f.Close()))
	}
	d := r.dirs[len(r.dirs)-1]
	r.dirs = r.dirs[:len(r.dirs)-1]
	mode := d.entry.Mode & 0o1777
	if mode&0o700 != 0o700 {
		// Without these permissions, the directory could not be moved to its destination.
		r.stage.later(r.path(d.entry), mode)
		mode |= 0o700
	}
	err := r.describe(d.fd, d.entry, mode)
	return named(d.entry, errors.Join(err, unix.Close(d.fd)))
}

// path returns the path, from the copy's top, of the directory that has just ended.
func (r *receiver) path(e *Entry) []string {
	var path []string
	for i, d := range r.dirs {
		if i > 0 {
			path = append(path, d.entry.Name)
		}
	}
	if len(r.dirs) > 0 {
		path = append(path, e.Name)
	}
	return path
}

// describe sets owner, mode and time. It drops set-user-ID bits, because a program from a hostile
// source would otherwise run with the rights of the copy's owner.
func (r *receiver) describe(fd int, e *Entry, mode uint32) error {
	if o := r.owner(e); o != nil {
		if err := unix.Fchown(fd, int(o.UID), int(o.GID)); err != nil {
			return err
		}
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		return err
	}
	return setTime(fd, "", e.ModTime)
}

// owner returns the owner of a new file, or nil for the user of this process.
func (r *receiver) owner(e *Entry) *Owner {
	if r.options.KeepOwners {
		return &Owner{e.UID, e.GID}
	}
	return r.options.Owner
}

// link creates a symbolic link.
func (r *receiver) link(in int, e *Entry) error {
	if err := unix.Symlinkat(e.Target, in, e.Name); err != nil {
		return named(e, err)
	}
	if o := r.owner(e); o != nil {
		if err := unix.Fchownat(in, e.Name, int(o.UID), int(o.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return named(e, err)
		}
	}
	return named(e, setTime(in, e.Name, e.ModTime))
}

// setTime sets the time of a file that is open, or of a link in a directory.
func setTime(fd int, name string, at time.Time) error {
	stamp, err := unix.TimeToTimespec(at)
	if err != nil {
		return nil // a time that no file can have
	}
	both := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, stamp}
	if name != "" {
		return unix.UtimesNanoAt(fd, name, both, unix.AT_SYMLINK_NOFOLLOW)
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), both, 0)
}

// named adds the name of an entry to an error.
func named(e *Entry, err error) error {
	if err == nil || e.Name == "" {
		return err
	}
	return fmt.Errorf("%s: %w", e.Name, err)
}

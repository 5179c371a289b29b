package changeset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// verb is the kind of an op.
type verb string

const (
	put  verb = "put"  // move a staged file to its path, and the previous file to the stage
	take verb = "take" // move a file to the stage
	mode verb = "mode" // change the mode of a file
)

// op is one step of an Apply. An undo needs only the op and the present locations of the files.
type op struct {
	Verb verb   `json:"verb"`
	Path []byte `json:"path"` // bytes, because a name need not be text
	Slot string `json:"slot"` // name of the file in the stage
	// Old is the replaced file and New the new one. One of them may be nil.
	Old  *mark  `json:"old,omitempty"`
	New  *mark  `json:"new,omitempty"`
	Mode uint32 `json:"mode,omitempty"`

	parent *os.File // the directory in which the op was done
}

// mark identifies a file and its content.
type mark struct {
	Ino   uint64    `json:"ino"`
	Type  Type      `json:"type"`
	Mode  uint32    `json:"mode"`
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
}

// markOf returns the mark of a file, or nil for nil.
func markOf(e *Entry) *mark {
	if e == nil {
		return nil
	}
	return &mark{Ino: e.Ino, Type: e.Type, Mode: e.Mode, Size: e.Size, MTime: e.MTime}
}

// matches reports whether a file is the marked one and unchanged. It ignores the change time, and
// the content of a directory.
func (m *mark) matches(e *Entry) bool {
	return m != nil && e != nil && m.Ino == e.Ino && m.Type == e.Type &&
		(m.Type == Dir || m.Size == e.Size && m.MTime.Equal(e.MTime))
}

// plan prepares all files that will be moved to their paths, and records the planned operations in
// the journal.
func (a *application) plan(changes []Change) error {
	var top unix.Stat_t
	if err := unix.Fstat(int(a.dir.Fd()), &top); err != nil {
		return err
	}
	var puts, takes, afterTakes, restricted []op
	for i := range changes {
		c := &changes[i]
		o := op{Path: []byte(c.Path), Slot: strconv.Itoa(i), Old: markOf(c.Outside)}
		switch {
		case c.New == nil && c.Outside == nil:
			continue // the host has removed the file too
		case c.New == nil:
			o.Verb = take
			takes = append(takes, o)
			continue
		case inPlace(c):
			if o.Verb, o.Mode = mode, c.New.Mode&exportedModeBits; c.New.Type == Dir && o.Mode&0o700 != 0o700 {
				restricted = append(restricted, o)
			} else {
				puts = append(puts, o)
			}
			continue
		}
		e, err := a.prepare(o.Slot, c, &top)
		if err != nil {
			return fmt.Errorf("apply %s: %w", c.Path, err)
		}
		if o.Verb, o.New = put, markOf(e); c.Outside != nil && c.Outside.Type == Dir {
			afterTakes = append(afterTakes, o) // after its content was removed
		} else {
			puts = append(puts, o)
		}
		if bits := c.New.Mode & exportedModeBits; c.New.Type == Dir && bits&0o700 != 0o700 {
			restricted = append(restricted, op{Verb: mode, Path: o.Path, Slot: o.Slot, Old: o.New, Mode: bits})
		}
	}
	// Removals come last, deepest first.
	slices.Reverse(takes)
	// The mode of a directory that its owner may not write is set after its content is complete.
	a.ops = slices.Concat(puts, takes, afterTakes, restricted)
	if err := a.flush(a.arriving, len(changes)); err != nil {
		return err
	}
	a.step("plan")
	return a.journal.write(record{Ops: a.ops, Dirs: a.dirTimes()})
}

// inPlace reports whether only the mode of a file changes.
func inPlace(c *Change) bool {
	return c.Outside != nil && c.Outside.Type == c.New.Type && (c.New.Type == Dir || c.New.Type == Regular && c.SameContent && c.Conflict == "")
}

// prepare creates a staged file with its final content and attributes.
func (a *application) prepare(slot string, c *Change, top *unix.Stat_t) (*Entry, error) {
	fd := int(a.arriving.Fd())
	switch c.New.Type {
	case Dir:
		if err := unix.Mkdirat(fd, slot, 0o700); err != nil {
			return nil, err
		}
	case Link:
		if err := unix.Symlinkat(c.New.Target, fd, slot); err != nil {
			return nil, err
		}
	case Regular, Other: // regular files exist already; other types are refused before
	}
	if os.Geteuid() == 0 {
		uid, gid := int(top.Uid), int(top.Gid)
		if previous, err := a.owner(c); err == nil {
			uid, gid = previous.uid, previous.gid
		}
		if err := unix.Fchownat(fd, slot, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
	}
	if c.New.Type != Link {
		bits := c.New.Mode & exportedModeBits
		if c.New.Type == Dir {
			bits |= 0o700
		}
		// No other process writes to the stage, so slot is still the created file.
		if err := unix.Fchmodat(fd, slot, bits, 0); err != nil {
			return nil, err
		}
	}
	return statIfExists(a.arriving, slot, slot)
}

// owner identifies the owner of a file.
type owner struct{ uid, gid int }

// owner returns the owner of the replaced file, which the new file keeps.
func (a *application) owner(c *Change) (owner, error) {
	f, err := beneath(a.dir, c.Path, unix.O_PATH)
	if err != nil {
		return owner{}, err
	}
	defer f.Close()
	var stat unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &stat)
	return owner{int(stat.Uid), int(stat.Gid)}, err
}

// dirTimes returns the times of the directories that will change, so that an undo can restore them.
func (a *application) dirTimes() []dirTime {
	var all []dirTime
	seen := map[string]bool{}
	for _, o := range a.ops {
		name := path.Dir(string(o.Path))
		if seen[name] || o.Verb == mode {
			continue
		}
		seen[name] = true
		d, err := beneath(a.dir, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			continue // the directory does not exist yet
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(d.Fd()), &stat); err == nil {
			all = append(all, dirTime{[]byte(name), stat.Ino, FromStat(&stat).MTime})
		}
		d.Close()
	}
	return all
}

// flush syncs the files of a directory to the disk: one by one if they are few, because a sync of
// the whole file system may write much more.
func (a *application) flush(d *os.File, files int) error {
	if files > 64 {
		return unix.Syncfs(int(d.Fd()))
	}
	names, err := readNames(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := openAt(int(d.Fd()), name, unix.O_RDONLY)
		if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EACCES) {
			continue // a link, or a file that even its owner may not read
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		f.Close()
		if err != nil {
			return err
		}
	}
	return d.Sync()
}

// readNames lists a directory from its beginning.
func readNames(d *os.File) ([]string, error) {
	if _, err := d.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return d.Readdirnames(-1)
}

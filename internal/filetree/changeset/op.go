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

// verb is what an op does.
type verb string

const (
	put  verb = "put"  // what is staged takes a place, and what was there goes to the stage
	take verb = "take" // what is there goes to the stage
	mode verb = "mode" // what is there gets another mode
)

// op is one step of an Apply. Each can be undone, from what it says and from
// what lies where alone.
type op struct {
	Verb verb   `json:"verb"`
	Path []byte `json:"path"` // bytes: a name need not be text
	Slot string `json:"slot"` // its name in the stage
	// Old and New are the files that change places; one may be nil.
	Old  *mark  `json:"old,omitempty"`
	New  *mark  `json:"new,omitempty"`
	Mode uint32 `json:"mode,omitempty"`

	parent *os.File // the directory that it was done in
}

// mark tells a file from all others, and what is in it from what it was.
type mark struct {
	Ino   uint64    `json:"ino"`
	Type  Type      `json:"type"`
	Mode  uint32    `json:"mode"`
	Size  int64     `json:"size"`
	MTime time.Time `json:"mtime"`
}

func markOf(e *Entry) *mark {
	if e == nil {
		return nil
	}
	return &mark{Ino: e.Ino, Type: e.Type, Mode: e.Mode, Size: e.Size, MTime: e.MTime}
}

// is reports whether a file is the marked one, unchanged. The change time does not
// count, and neither do the contents of a directory.
func (m *mark) is(e *Entry) bool {
	return m != nil && e != nil && m.Ino == e.Ino && m.Type == e.Type &&
		(m.Type == Dir || m.Size == e.Size && m.MTime.Equal(e.MTime))
}

// plan gets everything ready that is to take a place, and writes down what is
// about to be done.
func (a *application) plan(changes []Change) error {
	var top unix.Stat_t
	if err := unix.Fstat(int(a.dir.Fd()), &top); err != nil {
		return err
	}
	var puts, takes, last, shut []op
	for i := range changes {
		c := &changes[i]
		o := op{Path: []byte(c.Path), Slot: strconv.Itoa(i), Old: markOf(c.Outside)}
		switch {
		case c.New == nil && c.Outside == nil:
			continue // it is gone already
		case c.New == nil:
			o.Verb = take
			takes = append(takes, o)
			continue
		case inPlace(c):
			if o.Verb, o.Mode = mode, c.New.Mode&comesOut; c.New.Type == Dir && o.Mode&0o700 != 0o700 {
				shut = append(shut, o)
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
			last = append(last, o) // when it is empty
		} else {
			puts = append(puts, o)
		}
		if bits := c.New.Mode & comesOut; c.New.Type == Dir && bits&0o700 != 0o700 {
			shut = append(shut, op{Verb: mode, Path: o.Path, Slot: o.Slot, Old: o.New, Mode: bits})
		}
	}
	// What goes does so last, and from the deepest up.
	slices.Reverse(takes)
	// A directory that its owner may not write to is shut when all is in it.
	a.ops = slices.Concat(puts, takes, last, shut)
	if err := a.flush(a.arriving, len(changes)); err != nil {
		return err
	}
	a.step("plan")
	return a.journal.write(record{Ops: a.ops, Dirs: a.moments()})
}

// inPlace reports whether a file stays and gets another mode.
func inPlace(c *Change) bool {
	return c.Outside != nil && c.Outside.Type == c.New.Type && (c.New.Type == Dir || c.New.Type == Regular && c.SameContent && c.Conflict == "")
}

// prepare makes what is to take a place as it will be there.
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
	case Regular, Other: // its content is there already, and the latter never comes here
	}
	if os.Geteuid() == 0 {
		uid, gid := int(top.Uid), int(top.Gid)
		if had, err := a.owner(c); err == nil {
			uid, gid = had.uid, had.gid
		}
		if err := unix.Fchownat(fd, slot, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return nil, err
		}
	}
	if c.New.Type != Link {
		bits := c.New.Mode & comesOut
		if c.New.Type == Dir {
			bits |= 0o700
		}
		// The place is our own, so that it is what we made.
		if err := unix.Fchmodat(fd, slot, bits, 0); err != nil {
			return nil, err
		}
	}
	return lookAt(a.arriving, slot, slot)
}

type owner struct{ uid, gid int }

// owner is whose the file is that is replaced: it stays theirs.
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

// moments are the times of the directories in which names are about to be
// changed, so that they can be as before if it comes to nothing.
func (a *application) moments() []moment {
	var all []moment
	seen := map[string]bool{}
	for _, o := range a.ops {
		name := path.Dir(string(o.Path))
		if seen[name] || o.Verb == mode {
			continue
		}
		seen[name] = true
		d, err := beneath(a.dir, name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			continue // it is about to be made
		}
		var stat unix.Stat_t
		if err := unix.Fstat(int(d.Fd()), &stat); err == nil {
			all = append(all, moment{[]byte(name), stat.Ino, FromStat(&stat).MTime})
		}
		d.Close()
	}
	return all
}

// flush puts onto the disk what is in a directory of files: one by one while
// they are few, since all of a file system may be much more.
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
			continue // a link, or a file that not even its owner may read
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

package changeset

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// commit executes the planned operations. After an error, none of them is in effect.
func (a *application) commit() error {
	a.committing = true
	for i := range a.ops {
		a.step(fmt.Sprintf("op %d", i))
		if err := a.do(&a.ops[i]); err != nil {
			return placeFault(string(a.ops[i].Path), err)
		}
	}
	a.step("sync")
	if err := a.syncDirs(); err != nil {
		return err
	}
	a.step("done")
	if err := a.journal.write(record{Done: true}); err != nil {
		return err
	}
	a.committing = false
	a.step("clean")
	return nil
}

// maxOpenParents is the maximum number of directories that stay open for an undo.
const maxOpenParents = 256

// errTaken is returned for a path that was changed since the comparison.
var errTaken = fmt.Errorf("the file was changed concurrently: %w", unix.EEXIST)

// do executes one operation.
func (a *application) do(o *op) error {
	parent, base, err := parentOf(a.dir, string(o.Path))
	if err != nil {
		return err
	}
	// An undo must use this same directory, even if it was moved. Beyond maxOpenParents, an undo
	// finds the directory by name.
	if a.openParents < maxOpenParents {
		a.openParents++
		o.parent = parent
	} else {
		defer parent.Close()
	}
	current, err := statIfExists(parent, base, string(o.Path))
	if err != nil {
		return err
	}
	if (current != nil || o.Old != nil) && (!o.Old.matches(current) || o.Old.Mode != current.Mode) {
		return errTaken
	}
	switch o.Verb {
	case mode:
		return chmod(parent, base, o.Old, o.Mode)
	case take:
		return a.take(parent, base, o)
	case put:
	}
	return a.put(parent, base, o)
}

// chmod changes the mode of a file if it is still the expected file.
func chmod(parent *os.File, base string, want *mark, bits uint32) error {
	f, err := beneath(parent, base, unix.O_PATH)
	if err != nil {
		return err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return err
	}
	if e := FromStat(&stat); !want.matches(&e) || e.Type == Link {
		return errTaken
	}
	// The descriptor is used, because the name may refer to another file by now.
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), bits, 0)
}

// take moves a file to the stage. If that is not the expected file, take moves it back.
func (a *application) take(parent *os.File, base string, o *op) error {
	if err := move(parent, base, a.leaving, o.Slot); err != nil {
		return err
	}
	return a.checkTaken(a.leaving, o, func() error { return move(a.leaving, o.Slot, parent, base) })
}

// checkTaken checks a file that was moved to the stage: it must be the expected file, and a
// directory must be empty. Otherwise checkTaken calls back, which moves the file back.
func (a *application) checkTaken(stage *os.File, o *op, back func() error) error {
	e, err := statIfExists(stage, o.Slot, string(o.Path))
	if err == nil && !o.Old.matches(e) {
		err = errTaken
	}
	if err == nil && e.Type == Dir {
		err = empty(stage, o.Slot)
	}
	if err != nil {
		return errors.Join(err, back())
	}
	return nil
}

// empty returns errTaken if a directory is not empty.
func empty(in *os.File, base string) error {
	d, err := openAt(int(in.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(1)
	if len(names) > 0 {
		return errTaken
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// put moves a staged file to its path, and the previous file to the stage. If the file system
// supports it, this is one atomic step.
func (a *application) put(parent *os.File, base string, o *op) error {
	if o.Old == nil {
		return move(a.arriving, o.Slot, parent, base)
	}
	err := error(unix.EINVAL)
	if !a.noExchange {
		err = exchange(a.arriving, o.Slot, parent, base)
	}
	if err == nil {
		return a.checkTaken(a.arriving, o, func() error { return exchange(a.arriving, o.Slot, parent, base) })
	}
	if !isUnsupported(err) {
		return err
	}
	a.step("aside")
	if err := a.take(parent, base, o); err != nil {
		return err
	}
	a.step("between")
	if err := move(a.arriving, o.Slot, parent, base); err != nil {
		return errors.Join(err, move(a.leaving, o.Slot, parent, base))
	}
	return nil
}

// exchange exchanges two files atomically.
func exchange(x *os.File, xName string, y *os.File, yName string) error {
	return unix.Renameat2(int(x.Fd()), xName, int(y.Fd()), yName, unix.RENAME_EXCHANGE)
}

// isUnsupported reports whether an error means that the file system does not support this type of
// rename.
func isUnsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTSUP)
}

// move renames a file and fails if the new name exists.
func move(from *os.File, name string, to *os.File, newName string) error {
	err := unix.Renameat2(int(from.Fd()), name, int(to.Fd()), newName, unix.RENAME_NOREPLACE)
	if !isUnsupported(err) {
		return err
	}
	// The file system cannot check and rename atomically, so a file that appears in between is
	// replaced.
	if e, err := statIfExists(to, newName, newName); err != nil || e != nil {
		return errors.Join(err, unix.EEXIST)
	}
	return unix.Renameat(int(from.Fd()), name, int(to.Fd()), newName)
}

// syncDirs syncs the directories whose entries were changed.
func (a *application) syncDirs() error {
	seen := map[string]bool{}
	for _, o := range a.ops {
		seen[path.Dir(string(o.Path))] = true
	}
	if len(seen) > 64 {
		return unix.Syncfs(int(a.dir.Fd()))
	}
	for name := range seen {
		d, err := beneath(a.dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if isMissing(err) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ELOOP) {
			continue // the directory was removed or moved, or is unreadable
		}
		if err != nil {
			return err
		}
		err = d.Sync()
		d.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

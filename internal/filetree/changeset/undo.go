package changeset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// end unlocks the directory. If Apply did not finish, end first undoes everything.
func (a *application) end(failed error) error {
	defer a.close()
	var kept string
	var err error
	if failed != nil && a.committing {
		if kept, err = a.undo(); err == nil {
			a.step("undone")
			err = a.journal.write(record{Undone: true})
		}
	}
	if err == nil {
		err = a.removeStage(kept != "", failed != nil)
	}
	if err != nil {
		// The journal stays, and the next Apply or the next start tries again.
		return errors.Join(err, a.journal.close())
	}
	return errors.Join(leftoverFault(kept), a.journal.remove())
}

// undo restores all files, in reverse order. If a replaced file cannot be restored because another
// process changed the new one, the new file stays, the replaced file stays in the stage, and kept
// names the stage.
func (a *application) undo() (kept string, err error) {
	for i, o := range slices.Backward(a.ops) {
		a.step(fmt.Sprintf("undo %d", i))
		restored, err := a.undoOne(&o)
		if err != nil {
			return "", fmt.Errorf("restore %s: %w", o.Path, err)
		}
		if !restored {
			kept = a.stage.Name()
		}
	}
	for _, m := range a.dirs() {
		a.resetTime(m)
	}
	return kept, nil
}

// undoOne restores the file of one operation. It returns false if another file is at the path.
func (a *application) undoOne(o *op) (restored bool, err error) {
	old, err := statIfExists(a.leaving, o.Slot, o.Slot)
	if err != nil {
		return false, err
	}
	swapped, err := statIfExists(a.arriving, o.Slot, o.Slot)
	if err != nil {
		return false, err
	}
	parent, base := o.parent, path.Base(string(o.Path))
	if parent == nil {
		parent, _, err = parentOf(a.dir, string(o.Path))
		if isMissing(err) || errors.Is(err, unix.ELOOP) {
			// The file at the path is not the one that Apply put there. A file in the stage stays
			// there.
			return !o.Old.matches(old) && !o.Old.matches(swapped), nil
		}
		if err != nil {
			return false, err
		}
		defer parent.Close()
	}
	current, err := statIfExists(parent, base, string(o.Path))
	if err != nil {
		return false, err
	}
	if o.Verb == mode {
		if o.Old.matches(current) && current.Mode != o.Old.Mode {
			return true, chmod(parent, base, o.Old, o.Old.Mode)
		}
		return true, nil
	}
	switch {
	case o.New.matches(current) && o.Old.matches(swapped):
		return true, exchange(a.arriving, o.Slot, parent, base)
	case o.New.matches(current):
		if current.Type == Dir && empty(parent, base) != nil {
			return false, nil // another process has put a file in it
		}
		if err := move(parent, base, a.arriving, o.Slot); err != nil {
			return false, err
		}
		current = nil
	}
	if current == nil && o.Old.matches(old) {
		return true, move(a.leaving, o.Slot, parent, base)
	}
	return !o.Old.matches(old) && !o.Old.matches(swapped), nil
}

// dirs returns the times in the journal.
func (a *application) dirs() []dirTime {
	for _, l := range slices.Backward(a.journal.lines) {
		if l.Ops != nil {
			return l.Dirs
		}
	}
	return nil
}

// resetTime restores a directory's time. If that fails, the content is restored nevertheless.
func (a *application) resetTime(m dirTime) {
	d, err := beneath(a.dir, string(m.Path), unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return
	}
	defer d.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &stat); err != nil || stat.Ino != m.Ino {
		return
	}
	stamp := unix.NsecToTimespec(m.MTime.UnixNano())
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", d.Fd()), []unix.Timespec{{Nsec: unix.UTIME_OMIT}, stamp}, 0)
}

// removeStage removes the stage with all its files, unless it has to be preserved.
func (a *application) removeStage(keep, undone bool) error {
	if keep {
		return nil
	}
	for _, l := range a.journal.lines {
		if l.Begin == nil {
			continue
		}
		if !validStage(l.Begin.Stage) {
			return fmt.Errorf("a journal names the directory %q", l.Begin.Stage)
		}
		if err := a.host.RemoveAll(l.Begin.Stage); err != nil {
			return fmt.Errorf("remove %s: %w", l.Begin.Stage, err)
		}
		if undone {
			var stat unix.Stat_t
			if err := unix.Fstat(int(a.dir.Fd()), &stat); err == nil {
				a.resetTime(dirTime{[]byte("."), stat.Ino, l.Begin.MTime})
			}
		}
	}
	return nil
}

// validStage reports whether a name is one that stageName returns.
func validStage(name string) bool {
	rest, ok := strings.CutPrefix(name, stagePrefix)
	return ok && len(rest) == 32 && !strings.ContainsAny(rest, "/.")
}

// recover finishes an interrupted Apply: it undoes it, or preserves the result if all operations
// were done.
func (a *application) recover() (kept string, err error) {
	var stage string
	done, undone := false, false
	for _, l := range a.journal.lines {
		if l.Begin != nil {
			stage = l.Begin.Stage
		}
		a.ops = append(a.ops, l.Ops...)
		done, undone = done || l.Done, undone || l.Undone
	}
	if stage != "" && !validStage(stage) {
		return "", fmt.Errorf("a journal names the directory %q", stage)
	}
	if len(a.ops) > 0 && !done && !undone {
		if _, err := a.host.Lstat(stage); errors.Is(err, fs.ErrNotExist) {
			// The files to restore disappeared with the stage. Either a user removed it, or this is
			// another directory, with the inode number of a removed one.
			a.ops = nil
			return "", a.journal.restart()
		}
		if err := a.openStage(stage); err != nil {
			return "", fmt.Errorf("an earlier apply was killed: %w", err)
		}
		if kept, err = a.undo(); err != nil {
			return "", err
		}
		if err := a.journal.write(record{Undone: true}); err != nil {
			return "", err
		}
	}
	if err := a.removeStage(kept != "", !done); err != nil {
		return "", err
	}
	if kept != "" {
		return kept, a.journal.restart()
	}
	a.closeStage()
	return "", a.journal.restart()
}

// closeStage closes the stage.
func (a *application) closeStage() {
	for _, f := range []*os.File{a.arriving, a.leaving} {
		if f != nil {
			f.Close()
		}
	}
	for _, r := range []*os.Root{a.incoming, a.stage} {
		if r != nil {
			r.Close()
		}
	}
	a.arriving, a.leaving, a.incoming, a.stage, a.ops = nil, nil, nil, nil, nil
}

// Recover undoes interrupted Applies in their directories, using the journals in a private
// directory. It returns directories with files that could not be restored because other files are
// at their paths.
func Recover(ctx context.Context, journals string) (kept []string, err error) {
	names, err := os.ReadDir(journals)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recover: %w", err)
	}
	var problems []error
	for _, n := range names {
		if cause := context.Cause(ctx); cause != nil {
			return kept, cause
		}
		left, err := recoverOne(journals, n.Name())
		if fault.CodeOf(err) == "apply_running" {
			continue // its process is still running
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("recover %s: %w", filepath.Join(journals, n.Name()), err))
		}
		if left != "" {
			kept = append(kept, left)
		}
	}
	return kept, errors.Join(problems...)
}

// recoverOne recovers the directory of one journal.
func recoverOne(journals, base string) (kept string, err error) {
	j, err := lockJournal(journals, base)
	if err != nil {
		return "", err
	}
	a := &application{journal: j, step: func(string) {}}
	keep := false // whether the journal has files to restore
	defer func() {
		a.close()
		if err != nil || keep {
			err = errors.Join(err, j.close())
		} else {
			err = j.remove()
		}
	}()
	if len(j.lines) == 0 || j.lines[0].Path == "" {
		return "", nil // the Apply had not started
	}
	if a.host, err = os.OpenRoot(j.lines[0].Path); errors.Is(err, os.ErrNotExist) {
		// The directory was removed with all its content, or is on a disk that is not attached now.
		keep = j.interrupted()
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer a.host.Close()
	if a.dir, err = a.host.Open("."); err != nil {
		return "", err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(a.dir.Fd()), &stat); err != nil {
		return "", err
	}
	if stat.Ino != j.lines[0].Ino {
		// The path is now another directory, or the mount point of the detached disk.
		keep = j.interrupted()
		return "", nil
	}
	kept, err = a.recover()
	if kept != "" {
		kept = path.Join(j.lines[0].Path, path.Base(kept))
	}
	return kept, err
}

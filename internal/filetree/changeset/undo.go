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

// end lets go of the directory. If it did not come to the end, everything is
// put back.
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
		err = a.clean(kept != "", failed != nil)
	}
	if err != nil {
		// The journal stays, and the next Apply or start tries again.
		return errors.Join(err, a.journal.close())
	}
	return errors.Join(keptFault(kept), a.journal.remove())
}

// undo puts everything back, in reverse. kept names the stage if a file of
// those that were replaced cannot be put back, because somebody else changed
// the one that took its place: theirs stays.
func (a *application) undo() (kept string, err error) {
	for i, o := range slices.Backward(a.ops) {
		a.step(fmt.Sprintf("undo %d", i))
		put, err := a.undoOne(&o)
		if err != nil {
			return "", fmt.Errorf("put back %s: %w", o.Path, err)
		}
		if !put {
			kept = a.stage.Name()
		}
	}
	for _, m := range a.dirs() {
		a.resetTime(m)
	}
	return kept, nil
}

func (a *application) undoOne(o *op) (put bool, err error) {
	old, err := lookAt(a.leaving, o.Slot, o.Slot)
	if err != nil {
		return false, err
	}
	swapped, err := lookAt(a.arriving, o.Slot, o.Slot)
	if err != nil {
		return false, err
	}
	parent, base := o.parent, path.Base(string(o.Path))
	if parent == nil {
		parent, _, err = parentOf(a.dir, string(o.Path))
		if notThere(err) || errors.Is(err, unix.ELOOP) {
			// Nothing of ours is there. If something of it is here, it stays here.
			return !o.Old.is(old) && !o.Old.is(swapped), nil
		}
		if err != nil {
			return false, err
		}
		defer parent.Close()
	}
	have, err := lookAt(parent, base, string(o.Path))
	if err != nil {
		return false, err
	}
	if o.Verb == mode {
		if o.Old.is(have) && have.Mode != o.Old.Mode {
			return true, chmod(parent, base, o.Old, o.Old.Mode)
		}
		return true, nil
	}
	switch {
	case o.New.is(have) && o.Old.is(swapped):
		return true, exchange(a.arriving, o.Slot, parent, base)
	case o.New.is(have):
		if have.Type == Dir && empty(parent, base) != nil {
			return false, nil // somebody put something in it
		}
		if err := move(parent, base, a.arriving, o.Slot); err != nil {
			return false, err
		}
		have = nil
	}
	if have == nil && o.Old.is(old) {
		return true, move(a.leaving, o.Slot, parent, base)
	}
	return !o.Old.is(old) && !o.Old.is(swapped), nil
}

// dirs are the times that the journal has.
func (a *application) dirs() []moment {
	for _, l := range slices.Backward(a.journal.lines) {
		if l.Ops != nil {
			return l.Dirs
		}
	}
	return nil
}

// resetTime makes a directory as old as it was. That it fails changes nothing
// of what is in it.
func (a *application) resetTime(m moment) {
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

// clean removes the stage with all that is in it, unless it is kept.
func (a *application) clean(keep, undone bool) error {
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
				a.resetTime(moment{[]byte("."), stat.Ino, l.Begin.MTime})
			}
		}
	}
	return nil
}

func validStage(name string) bool {
	rest, ok := strings.CutPrefix(name, stagePrefix)
	return ok && len(rest) == 32 && !strings.ContainsAny(rest, "/.")
}

// recover ends what a killed Apply left: back, or if it was done, forward.
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
			// What could be put back went with it: somebody removed it, or this is
			// another directory, which got the number of one that is gone.
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
	if err := a.clean(kept != "", !done); err != nil {
		return "", err
	}
	if kept != "" {
		return kept, a.journal.restart()
	}
	a.closeStage()
	return "", a.journal.restart()
}

// closeStage lets go of the stage.
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

// Recover puts back what killed Applys left in their directories, whose
// journals are in a directory of ours. It returns directories in which files
// are kept that could not be put back, since others have taken their places.
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
			continue // its process was not killed
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

func recoverOne(journals, base string) (kept string, err error) {
	j, err := lockJournal(journals, base)
	if err != nil {
		return "", err
	}
	a := &application{journal: j, step: func(string) {}}
	away := false // with what is to be put back
	defer func() {
		a.close()
		if err != nil || away {
			err = errors.Join(err, j.close())
		} else {
			err = j.remove()
		}
	}()
	if len(j.lines) == 0 || j.lines[0].Path == "" {
		return "", nil // it had not begun
	}
	if a.host, err = os.OpenRoot(j.lines[0].Path); errors.Is(err, os.ErrNotExist) {
		// Gone with all that was in it, or on a disk that is attached later.
		away = j.left()
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
		// Another directory by now, or the one that a disk is attached to.
		away = j.left()
		return "", nil
	}
	kept, err = a.recover()
	if kept != "" {
		kept = path.Join(j.lines[0].Path, path.Base(kept))
	}
	return kept, err
}

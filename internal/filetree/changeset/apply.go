package changeset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// ApplyOptions say how changes are brought out.
type ApplyOptions struct {
	// Dir is the directory inside that the changes are of.
	Dir string
	// Journals is a private directory for journals of unfinished applies, in which no
	// other process writes. It must not be below the host's directory: a program that
	// wrote there could have placed a journal of its own.
	Journals string
	// Overwrite brings also what has a conflict.
	Overwrite bool
	Bounds    Bounds

	// Ready is called, unless nil, with what is about to come: with the sums that
	// it has by now, which are others than inside where something was masked.
	// After an error of its nothing comes.
	Ready func([]Change) error

	// step is called before each step, with its name.
	step func(name string)
	// apart is as on a file system that cannot exchange two files.
	apart bool
}

// Apply brings changes out into a directory of the host's, all or none. They must
// come from an earlier Compare: since then, neither a file inside may have changed
// its bytes, nor a file outside have been touched. It returns what is there now, for
// the next comparison; an entry without a type is gone.
func Apply(ctx context.Context, box Box, host *os.Root, changes []Change, o ApplyOptions) (now []Entry, err error) {
	if o.step == nil {
		o.step = func(string) {}
	}
	changes = slices.Clone(changes)
	slices.SortFunc(changes, func(x, y Change) int { return strings.Compare(x.Path, y.Path) })
	if err := acceptable(changes, o.Overwrite); err != nil {
		return nil, err
	}
	a, err := begin(host, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.end(err)) }()
	// What is in the way is found before anything is fetched, and again when it
	// is about to be replaced.
	for i := range changes {
		if err := a.expect(&changes[i]); err != nil {
			return nil, err
		}
	}
	o.step("fetch")
	if changes, err = stageFor(ctx, box, changes, a.incoming, o); err != nil {
		return nil, err
	}
	if o.Ready != nil {
		if err := o.Ready(changes); err != nil {
			return nil, err
		}
	}
	if err := a.plan(changes); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := a.commit(); err != nil {
		return nil, err
	}
	for _, c := range changes {
		// What cannot be found now was moved by others since: the next comparison
		// tells.
		switch e, err := lstatBeneath(a.dir, c.Path); {
		case err != nil:
		case e == nil:
			now = append(now, Entry{Path: c.Path})
		default:
			now = append(now, *e)
		}
	}
	return now, nil
}

// stageFor is Stage for what comes to a host's directory.
func stageFor(ctx context.Context, box Box, changes []Change, into *os.Root, o ApplyOptions) ([]Change, error) {
	came, err := Stage(ctx, box, o.Dir, changes, into, o.Bounds)
	if err != nil {
		return nil, err
	}
	for i := range came {
		switch known := changes[i].Has(Masked); {
		case changes[i].New == nil:
		case inPlace(&changes[i]):
			came[i] = changes[i] // the file outside stays, with all that is in it
			came[i].Flags = slices.DeleteFunc(slices.Clone(came[i].Flags), func(f Flag) bool { return f == Masked })
		case came[i].Has(Masked) && !known && came[i].Outside != nil && !o.Overwrite:
			// Too large to be looked into when it was compared.
			return nil, fault.Newf(fault.Conflict, "changes_conflict", "%q holds a sealed secret, and would replace a file that may hold it too", came[i].Path).
				WithHint("leave it out, or say that the sandbox's is to replace it")
		}
	}
	return came, nil
}

// acceptable refuses what must never come out, whatever flags it was given.
func acceptable(changes []Change, overwrite bool) error {
	for i := range changes {
		c := &changes[i]
		if err := checkPath(c.Path); err != nil {
			return fault.New(fault.Denied, "changes_refused", err.Error())
		}
		if i > 0 && changes[i-1].Path == c.Path {
			return fault.Newf(fault.Invalid, "changes_invalid", "%q is there twice", c.Path)
		}
		if (c.Op == Removed) != (c.New == nil) {
			return fault.Newf(fault.Invalid, "changes_invalid", "%q is removed and is not", c.Path)
		}
		if c.Refused() || reserved(c.Path) || !comesOutAs(c) {
			return refused(*c)
		}
		if c.Conflict != "" && !overwrite {
			return conflict(c.Path)
		}
	}
	return nil
}

// comesOutAs reports whether a file is of a kind that comes out.
func comesOutAs(c *Change) bool {
	switch {
	case c.New == nil:
		return c.Outside == nil || c.Outside.Type != Other
	case c.New.Type == Regular:
		return c.New.Mode&0o6000 == 0 && validSum(c.New.Sum)
	case c.New.Type == Link:
		return !leadsOut(c.Path, c.New.Target) && c.New.Target != ""
	}
	return c.New.Type == Dir
}

func conflict(name string) error {
	return fault.Newf(fault.Conflict, "changes_conflict", "%q was changed outside in the meantime", name).
		WithHint("look at the changes again, and say if the sandbox's are to replace it")
}

// application is one Apply under way.
type application struct {
	journal *journal
	host    *os.Root
	dir     *os.File // host
	// stage is the directory in it for what comes and what goes: on the same
	// file system, so that each file takes its place in one step.
	stage             *os.Root
	incoming          *os.Root // stage/new
	arriving, leaving *os.File // stage/new, stage/old
	ops               []op
	step              func(string)
	committing, apart bool
	kept              int // of ops that hold their directory open
}

func (a *application) close() {
	for _, o := range a.ops {
		if o.parent != nil {
			o.parent.Close()
		}
	}
	a.closeStage()
	if a.dir != nil {
		a.dir.Close()
	}
}

// begin takes the directory for this Apply alone, after it has put back what
// a killed one left, and makes the place for what is to come.
func begin(host *os.Root, o ApplyOptions) (_ *application, err error) {
	dir, err := host.Open(".")
	if err != nil {
		return nil, err
	}
	j, err := openJournal(o.Journals, host.Name(), dir)
	if err != nil {
		dir.Close()
		return nil, err
	}
	a := &application{journal: j, host: host, dir: dir, step: o.step, apart: o.apart}
	if j.left() {
		if kept, err := a.recover(); err != nil || kept != "" {
			a.close()
			j.close()
			return nil, errors.Join(err, keptFault(kept))
		}
	}
	if err := a.makeStage(); err != nil {
		return nil, errors.Join(err, a.end(err))
	}
	return a, nil
}

func keptFault(kept string) error {
	if kept == "" {
		return nil
	}
	return fault.Newf(fault.Conflict, "apply_unfinished", "an earlier apply was killed, and files were changed since: what they were is in %q", kept).
		WithHint("compare, and try again")
}

func (a *application) makeStage() error {
	name := stageName()
	a.step("stage")
	if err := a.journal.write(record{Begin: &beginning{Stage: name, MTime: mtimeOf(a.dir)}}); err != nil {
		return err
	}
	a.step("directory")
	if err := a.host.Mkdir(name, 0o700); err != nil {
		return placeFault(name, err)
	}
	for _, sub := range []string{"new", "old"} {
		if err := a.host.Mkdir(path.Join(name, sub), 0o700); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
	return a.openStage(name)
}

func (a *application) openStage(name string) (err error) {
	if a.stage, err = a.host.OpenRoot(name); err != nil {
		return err
	}
	if a.incoming, err = a.stage.OpenRoot("new"); err != nil {
		return err
	}
	if a.arriving, err = beneath(a.dir, path.Join(name, "new"), unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
		return err
	}
	a.leaving, err = beneath(a.dir, path.Join(name, "old"), unix.O_RDONLY|unix.O_DIRECTORY)
	return err
}

// expect reports whether a place outside is as it was when it was compared.
func (a *application) expect(c *Change) error {
	e, err := lstatBeneath(a.dir, c.Path)
	if err != nil {
		return placeFault(c.Path, err)
	}
	if !asExpected(e, c.Outside) {
		return conflict(c.Path)
	}
	return nil
}

func asExpected(have, want *Entry) bool {
	if have == nil || want == nil {
		return have == nil && want == nil
	}
	return stillIs(want, have)
}

// placeFault returns the fault for an error at the destination of a change.
func placeFault(name string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP), notThere(err), errors.Is(err, unix.EEXIST):
		return conflict(name)
	case errors.Is(err, unix.EXDEV):
		return fault.Wrap(err, fault.Unsupported, "changes_elsewhere", fmt.Sprintf("%q is on another file system than its workspace, so that it cannot be replaced in one step", name)).
			WithHint("leave it out, or export it")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fault.Wrap(err, fault.Denied, "changes_not_writable", fmt.Sprintf("%q cannot be written", name))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "disk_full", fmt.Sprintf("there is no room for %q", name))
	}
	return fmt.Errorf("apply %s: %w", name, err)
}

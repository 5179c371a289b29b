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

// ApplyOptions configure how changes are applied.
type ApplyOptions struct {
	// Dir is the directory in the sandbox that the changes belong to.
	Dir string
	// Journals is a private directory for journals of unfinished applies, in which no other process
	// writes. It must not be below the host's directory, because a program that writes there could
	// forge a journal.
	Journals string
	// Overwrite also applies changes that have a conflict.
	Overwrite bool
	Bounds    Bounds

	// Ready, unless nil, is called with the changes that are about to be applied. Their checksums
	// are those of the content to be written, which differs from the sandbox's if secrets were
	// redacted. If Ready returns an error, nothing is applied.
	Ready func([]Change) error

	// step is called before each step, with its name.
	step func(name string)
	// noExchange makes Apply behave as on a file system that cannot exchange two files.
	noExchange bool
}

// Apply applies either all changes or none to a directory of the host. They must come from an
// earlier Compare: since then, the content of the sandbox's files and the files outside must not
// have changed. It returns the new entries outside, for the next comparison. An entry without a
// type was removed.
func Apply(ctx context.Context, source Source, host *os.Root, changes []Change, o ApplyOptions) (now []Entry, err error) {
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
	// Conflicts are checked before anything is fetched, and again just before each replacement.
	for i := range changes {
		if err := a.expect(&changes[i]); err != nil {
			return nil, err
		}
	}
	o.step("fetch")
	if changes, err = stageForHost(ctx, source, changes, a.incoming, o); err != nil {
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
		// If a file cannot be found now, another process has moved it. The next comparison reports
		// it.
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

// stageForHost is Stage for content that will be applied to a directory of the host.
func stageForHost(ctx context.Context, source Source, changes []Change, into *os.Root, o ApplyOptions) ([]Change, error) {
	staged, err := Stage(ctx, source, o.Dir, changes, into, o.Bounds)
	if err != nil {
		return nil, err
	}
	for i := range staged {
		switch known := changes[i].Has(Masked); {
		case changes[i].New == nil:
		case inPlace(&changes[i]):
			staged[i] = changes[i] // the file outside stays, with all its content
			staged[i].Flags = slices.DeleteFunc(slices.Clone(staged[i].Flags), func(f Flag) bool { return f == Masked })
		case staged[i].Has(Masked) && !known && staged[i].Outside != nil && !o.Overwrite:
			// The file was too large to be read at the comparison.
			return nil, fault.Newf(fault.Conflict, "changes_conflict", "%q contains a secret, and would replace a file that may contain it too", staged[i].Path).
				WithHint("leave it out, or overwrite the file outside")
		}
	}
	return staged, nil
}

// acceptable rejects changes that must never be applied, regardless of the flags in the request.
func acceptable(changes []Change, overwrite bool) error {
	for i := range changes {
		c := &changes[i]
		if err := checkPath(c.Path); err != nil {
			return fault.New(fault.Denied, "changes_refused", err.Error())
		}
		if i > 0 && changes[i-1].Path == c.Path {
			return fault.Newf(fault.Invalid, "changes_invalid", "%q appears twice", c.Path)
		}
		if (c.Op == Removed) != (c.New == nil) {
			return fault.Newf(fault.Invalid, "changes_invalid", "%q is removed and has content", c.Path)
		}
		if c.Refused() || reserved(c.Path) || !typeAllowed(c) {
			return refused(*c)
		}
		if c.Conflict != "" && !overwrite {
			return conflict(c.Path)
		}
	}
	return nil
}

// typeAllowed reports whether a file has a type that may be applied.
func typeAllowed(c *Change) bool {
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

// conflict returns the error for a file that was changed outside.
func conflict(name string) error {
	return fault.Newf(fault.Conflict, "changes_conflict", "%q was changed outside since the comparison", name).
		WithHint("review the changes again, or overwrite the file outside")
}

// application is an Apply in progress.
type application struct {
	journal *journal
	host    *os.Root
	dir     *os.File // the same directory as host
	// stage is a directory in dir for new and replaced files, on the same file system, so that each
	// file can be renamed into place.
	stage                  *os.Root
	incoming               *os.Root // stage/new
	arriving, leaving      *os.File // stage/new, stage/old
	ops                    []op
	step                   func(string)
	committing, noExchange bool
	openParents            int // number of ops whose directory stays open
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

// begin locks the directory for this Apply. It first undoes an interrupted Apply, and then creates
// the stage.
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
	a := &application{journal: j, host: host, dir: dir, step: o.step, noExchange: o.noExchange}
	if j.interrupted() {
		if kept, err := a.recover(); err != nil || kept != "" {
			a.close()
			j.close()
			return nil, errors.Join(err, leftoverFault(kept))
		}
	}
	if err := a.makeStage(); err != nil {
		return nil, errors.Join(err, a.end(err))
	}
	return a, nil
}

// leftoverFault returns the error for an interrupted apply that could not be undone completely.
func leftoverFault(kept string) error {
	if kept == "" {
		return nil
	}
	return fault.Newf(fault.Conflict, "apply_unfinished", "an earlier apply was killed, and files have changed since; their earlier content is in %q", kept).
		WithHint("compare again, and repeat the apply")
}

// makeStage creates the stage, after an entry in the journal.
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

// openStage opens the directories of the stage.
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

// expect returns a conflict if a file outside has changed since the comparison.
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

// asExpected reports whether a file is the one of the comparison.
func asExpected(existing, want *Entry) bool {
	if existing == nil || want == nil {
		return existing == nil && want == nil
	}
	return stillIs(want, existing)
}

// placeFault returns the fault for an error at the path of a change.
func placeFault(name string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP), isMissing(err), errors.Is(err, unix.EEXIST):
		return conflict(name)
	case errors.Is(err, unix.EXDEV):
		return fault.Wrap(err, fault.Unsupported, "changes_elsewhere", fmt.Sprintf("%q is on a different file system than the rest of the workspace, so it cannot be replaced atomically", name)).
			WithHint("leave it out, or export it")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fault.Wrap(err, fault.Denied, "changes_not_writable", fmt.Sprintf("%q cannot be written", name))
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "disk_full", fmt.Sprintf("the disk is too full for %q", name))
	}
	return fmt.Errorf("apply %s: %w", name, err)
}

package lifecycle

import (
	"context"
	"fmt"
	"os"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

// codePrograms says that saved memory would go on with other programs.
const codePrograms = "snapshot_programs_changed"

// hintPrograms is what helps then.
const hintPrograms = "go on with the files alone: crannog resume --files-only for one that is paused, pause or snapshot --files-only for one that runs"

// sameFiles refuses memory that refers to files of the host which are others now:
// it would run through code that is not there any more.
func (s *Service) sameFiles(ctx context.Context, templateID string, b sandbox.Base, needs *sandbox.Needs) error {
	for _, bind := range b.Root.Binds {
		if _, err := os.Stat(bind.Source); err != nil {
			return otherPrograms(bind.Source)
		}
	}
	if needs == nil {
		// It was saved by an earlier version, or its engine cannot tell what it
		// refers to: then it may be anything.
		now, err := s.anew(ctx, templateID, b)
		if err != nil {
			return err
		}
		if now.Revision != b.Revision {
			return fault.New(fault.Conflict, codePrograms, "programs of the template have changed since the sandbox began, and what is in its memory refers to them").
				WithHint(hintPrograms)
		}
		return nil
	}
	_, missing, err := s.standIns(needs)
	if err != nil {
		return err
	}
	if missing != "" {
		return otherPrograms(missing)
	}
	return nil
}

// standIns are the copies that stand for files of the host which are others now,
// and the first of which there is no copy.
func (s *Service) standIns(needs *sandbox.Needs) (list []engine.Bind, missing string, err error) {
	if needs == nil {
		return nil, "", nil
	}
	changed, err := hostfiles.Changed(needs.Files)
	if err != nil {
		return nil, "", fmt.Errorf("files that a saved memory refers to: %w", err)
	}
	for _, f := range changed {
		source := ""
		if !f.Dir && s.hostFiles != nil {
			if source, err = s.hostFiles.Find(f); err != nil {
				return nil, "", fmt.Errorf("the copy of %s: %w", f.Path, err)
			}
		}
		switch {
		case f.Inside != "" && (f.Dir || source != ""):
			list = append(list, engine.Bind{Source: source, Target: f.Inside})
		case missing == "":
			missing = f.Path
		}
	}
	return list, missing, nil
}

func otherPrograms(path string) error {
	return fault.Newf(fault.Conflict, codePrograms, "%s on the host has changed, no copy of it was kept, and what is in the sandbox's memory refers to it as it was", path).
		WithHint(hintPrograms)
}

// savedMemory writes a sandbox's memory down, and keeps copies of what it refers to.
func (s *Service) savedMemory(ctx context.Context, r sandbox.Row, c engine.Checkpointer, dir string) (*sandbox.Needs, error) {
	binder, ok := c.(engine.Binder)
	if !ok {
		return nil, c.Checkpoint(ctx, r.ID, dir)
	}
	list, bound, err := binder.CheckpointBound(ctx, r.ID, dir)
	if err != nil {
		return nil, err
	}
	defer list.Open.Close()
	var needs *sandbox.Needs
	if bound {
		needs = &sandbox.Needs{Files: s.keep(r, list)}
	}
	// What could never go on is not kept.
	return needs, s.sameFiles(ctx, r.TemplateID, r.Base, needs)
}

// keep copies the host files of a list. If they cannot be copied, the saved memory
// works as long as the host has them, so that a full disk does not prevent saving.
func (s *Service) keep(r sandbox.Row, list engine.Bound) []hostfiles.File {
	if s.hostFiles == nil {
		return list.Files
	}
	var lost error
	count := 0
	for i, f := range list.Files {
		kept, err := s.hostFiles.Keep(f, list.Open[i])
		if err != nil {
			lost = err
			count++
		}
		list.Files[i] = kept
	}
	if lost != nil {
		s.log.Warn("no copies were kept of files of the host that a saved memory refers to", "sandbox", r.ID, "files", count, "err", lost)
	}
	return list.Files
}

func (s *Service) syncHostFiles() error {
	if s.hostFiles == nil {
		return nil
	}
	return s.hostFiles.Sync()
}

// pruneHostFiles drops the copies that no saved memory refers to any more.
func (s *Service) pruneHostFiles(ctx context.Context) (freed int64, err error) {
	if s.hostFiles == nil {
		return 0, nil
	}
	rows, err := s.store.List(ctx, sandbox.Query{AllOwners: true})
	if err != nil {
		return 0, err
	}
	saved, err := s.store.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true})
	if err != nil {
		return 0, err
	}
	var lists [][]hostfiles.File
	for _, r := range rows {
		if r.Saved.Needs != nil {
			lists = append(lists, r.Saved.Needs.Files)
		}
	}
	for _, n := range saved {
		if n.Base.Needs != nil {
			lists = append(lists, n.Base.Needs.Files)
		}
	}
	return s.hostFiles.Prune(lists...)
}

package savedstate

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/hostfiles"
)

// hostFiles copies the host files to which saved memory refers.
type hostFiles struct {
	rows   Rows
	copies sandbox.HostFiles // nil keeps none
	log    *slog.Logger
}

// replacements returns the copies that replace changed files of the host, and the first changed
// file without a copy.
func (h hostFiles) replacements(needs *sandbox.Needs) (list []engine.Bind, missing string, err error) {
	if needs == nil {
		return nil, "", nil
	}
	changed, err := hostfiles.Changed(needs.Files)
	if err != nil {
		return nil, "", fmt.Errorf("host files of saved memory: %w", err)
	}
	for _, f := range changed {
		source := ""
		if !f.Dir && h.copies != nil {
			if source, err = h.copies.Find(f); err != nil {
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

// keep copies the host files of a list. If they cannot be copied, the saved memory can be restored
// as long as the host has them, so that a full disk does not prevent saving.
func (h hostFiles) keep(r sandbox.Row, list engine.Bound) []hostfiles.File {
	if h.copies == nil {
		return list.Files
	}
	var copyErr error
	count := 0
	for i, f := range list.Files {
		copied, err := h.copies.Keep(f, list.Open[i])
		if err != nil {
			copyErr = err
			count++
		}
		list.Files[i] = copied
	}
	if copyErr != nil {
		h.log.Warn("host files to which saved memory refers were not copied", "sandbox", r.ID, "files", count, "err", copyErr)
	}
	return list.Files
}

func (h hostFiles) sync() error {
	if h.copies == nil {
		return nil
	}
	return h.copies.Sync()
}

// prune removes the copies that no saved memory refers to any more.
func (h hostFiles) prune(ctx context.Context) (freed int64, err error) {
	if h.copies == nil {
		return 0, nil
	}
	rows, err := h.rows.List(ctx, sandbox.Query{AllOwners: true})
	if err != nil {
		return 0, err
	}
	saved, err := h.rows.ListSnapshots(ctx, sandbox.SnapshotQuery{AllOwners: true, Templates: true})
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
	return h.copies.Prune(lists...)
}

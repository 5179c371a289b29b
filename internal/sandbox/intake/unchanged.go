package intake

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/sandbox"
)

// unchangedBytes limits the bytes of events that Unchanged reads. If there are more, the files are
// compared.
const unchangedBytes = 8 << 20

// Unchanged reports whether the instance's kernel recorded no change below the workspace since the
// sandbox's start, so that no file has to be compared. In any doubt it returns false. The kernel
// writes these events itself, so no program inside can hide a change.
func (s *Service) Unchanged(ctx context.Context, r sandbox.Row) bool {
	o := s.deps.Observer(r.Engine)
	if o == nil || !s.deps.Complete(r.Engine) || s.deps.Dir == "" || r.Run != 1 || r.Origin != "" || r.Parent != "" {
		return false // changes before its saved state are recorded elsewhere
	}
	if err := o.Survey(ctx, r.ID); err != nil {
		return false
	}
	f, err := os.Open(filepath.Join(s.deps.Dir, r.ID+".ndjson"))
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > unchangedBytes {
		return false
	}
	return untouched(events.NewReader(f, 0, 0), r.Base)
}

// untouched reports whether events contain no change of the workspace.
func untouched(from interface{ Next() (events.Event, error) }, b sandbox.Base) bool {
	started := false
	for {
		e, err := from.Next()
		switch {
		case errors.Is(err, io.EOF):
			return started
		case err != nil, e.Kind == events.Gap:
			return false // some events were not seen
		case e.Kind == events.File && touches(b, e.Path):
			return false
		}
		started = true
	}
}

// touches reports whether a path is the workspace or its repository, is within or above one of
// them, or is not an absolute path.
func touches(b sandbox.Base, path string) bool {
	if !strings.HasPrefix(path, "/") || path == "/" || sandbox.Overlap(path, sandbox.WorkspaceDir) {
		return true
	}
	if b.Git == nil {
		return false
	}
	return sandbox.Overlap(path, b.Git.Target) || slices.ContainsFunc(b.Links, func(l engine.Link) bool { return sandbox.Overlap(path, l.Path) })
}

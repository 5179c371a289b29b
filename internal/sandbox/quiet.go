package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/witness"
)

// quietBytes is how many events are read to see that nothing was changed: what
// did more is compared.
const quietBytes = 8 << 20

// quiet tells whether the box's kernel saw that nothing below the workspace was
// changed since the sandbox's start, so that no file need be looked at. All
// that is not plainly so is false. The kernel writes what it saw by itself: no
// program inside can hide a change from it.
func (s *Service) quiet(ctx context.Context, r Record) bool {
	o, ok := s.engine.(engine.Observer)
	if !ok || s.seen == "" || r.Run != 1 || r.Origin != "" || r.Parent != "" {
		return false // what it goes on from is written elsewhere
	}
	if err := o.Survey(ctx, r.ID); err != nil {
		return false
	}
	f, err := os.Open(filepath.Join(s.seen, r.ID+".ndjson"))
	if err != nil {
		return false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > quietBytes {
		return false
	}
	return untouched(witness.NewReader(f, 0, 0))
}

// untouched reads events from the first on.
func untouched(events interface{ Next() (witness.Event, error) }) bool {
	began := false
	for {
		e, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			return began
		case err != nil, e.Kind == witness.Gap:
			return false // something was not seen
		case e.Kind == witness.File && touches(e.Path):
			return false
		}
		began = true
	}
}

// touches tells whether a path is the workspace, is in it or holds it, or
// whether nobody knows where it is.
func touches(path string) bool {
	return !strings.HasPrefix(path, "/") || path == "/" || path == workspaceDir || strings.HasPrefix(path, workspaceDir+"/")
}

package advisory

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/packages"
)

// ImportFrom is Import for a stream, of which it stores a copy first, because a zip is read from its
// end.
func (s *Store) ImportFrom(ctx context.Context, r io.Reader) (Imported, error) {
	f, err := os.CreateTemp(filepath.Dir(s.path(packages.NPM)), ".upload-*")
	if err != nil {
		return Imported{}, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return Imported{}, err
	}
	n, err := io.Copy(f, io.LimitReader(r, MaxImport+1))
	if err != nil {
		return Imported{}, err
	}
	return s.Import(ctx, f, n)
}

package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
)

// MaxResult limits what is stored about one content.
const MaxResult = 64 << 10

// Result returns what PutResult has stored about a content. The error has the kind NotFound if
// there is nothing.
func (s *Store) Result(sum string) ([]byte, error) {
	f, err := s.open(resultsDir, sum)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxResult+1))
	if err == nil && len(text) > MaxResult {
		err = missing(errors.New("the result is too long"))
	}
	return text, err
}

// PutResult stores what was found in a content that the cache has. The content's removal removes
// it. Without the content nothing is stored, because nothing would remove it.
func (s *Store) PutResult(sum string, text []byte) error {
	if len(text) > MaxResult {
		return fault.New(fault.Invalid, "package_result", "the result about a package is too long")
	}
	s.mu.Lock() // no prune runs between the look at the content and the write
	defer s.mu.Unlock()
	f, err := s.open(blobsDir, sum)
	if err != nil {
		return err
	}
	f.Close()
	path := filepath.Join(s.dir, shardPath(resultsDir, sum))
	if err := mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	// Sandboxes must not read what the checks found, so only the server can.
	if err := durable.Replace(path, text, durable.Options{Draft: draftPattern, Mode: 0o600}); err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	return nil
}

// Content opens a content by its SHA-256, and compares it with that. The caller must close it. The
// error has the kind NotFound if the cache does not have it, or if it is damaged.
func (s *Store) Content(ctx context.Context, sum string) (*os.File, int64, error) {
	f, err := s.open(blobsDir, sum)
	if err != nil {
		return nil, 0, err
	}
	h := sha256.New()
	n, err := io.Copy(h, stoppable{ctx, f})
	if err == nil && hex.EncodeToString(h.Sum(nil)) != sum {
		err = missing(errors.New("the content is damaged"))
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, n, nil
}

// stoppable is a reader that fails when its context has ended.
type stoppable struct {
	ctx context.Context
	io.Reader
}

func (r stoppable) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

func (s *Store) open(kind, sum string) (*os.File, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != sum {
		return nil, invalidEntry("its digest is not a SHA-256 in lower case")
	}
	f, err := os.OpenFile(filepath.Join(s.dir, shardPath(kind, sum)), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, missing(err)
	}
	return f, err
}

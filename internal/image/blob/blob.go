// Package blob owns a directory of immutable files that are named by their SHA-256 digest. A crash
// leaves no partial file, and each file is verified whenever it is read.
package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/host/pattern"
)

// CodeCorrupt is the code of the error for a blob whose content no longer matches its digest.
const CodeCorrupt = "image_blob_corrupt"

// CodeUnknown is the code of the error for a blob that is not in the store.
const CodeUnknown = "image_blob_unknown"

// Store is a directory of blobs. All methods are safe for concurrent use, also by several
// processes.
type Store struct {
	dir, drafts string
	// step is called before each step of a commit, for tests in which the process dies.
	step    func(name string) error
	reserve func(bytes int64) error
}

// Trace sets step, which is called before each step of a commit, for tests in which the process
// dies.
func (s *Store) Trace(step func(name string) error) { s.step = step }

// Limit sets room, which is called with the size of a blob before the blob is written, and returns
// an error if there is no room. Limit must be called before any other use of the store.
func (s *Store) Limit(room func(bytes int64) error) { s.reserve = room }

// Open opens a store, and creates its directory if it does not exist.
func Open(dir string) (*Store, error) {
	s := &Store{dir: filepath.Join(dir, "sha256"), drafts: filepath.Join(dir, "drafts")}
	for _, d := range []string{s.dir, s.drafts} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("image blobs: %w", err)
		}
	}
	return s, nil
}

// hexDigest matches a digest's text, which becomes a file name.
var hexDigest = pattern.New(`^[0-9a-f]{64}$`)

// path returns the path of a blob. It rejects digests of other algorithms, so that no file name is
// made from text of a registry.
func (s *Store) path(d v1.Hash) (string, error) {
	if d.Algorithm != "sha256" || !hexDigest.MatchString(d.Hex) {
		return "", fault.Newf(fault.Invalid, "image_digest_invalid", "the digest %.100q is not a SHA-256 digest", d.String())
	}
	return filepath.Join(s.dir, d.Hex), nil
}

// Size returns the size of a blob, and false if it is not in the store.
func (s *Store) Size(d v1.Hash) (int64, bool) {
	path, err := s.path(d)
	if err != nil {
		return 0, false
	}
	info, err := os.Lstat(path)
	if err != nil {
		return 0, false
	}
	return info.Size(), true
}

// Open opens a blob. Reading to the end verifies its digest: the last Read returns an error instead
// of io.EOF if the content differs, and the blob is removed, so that the next pull fetches it
// again.
func (s *Store) Open(d v1.Hash) (io.ReadCloser, error) {
	path, err := s.path(d)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Newf(fault.NotFound, CodeUnknown, "the image store has no blob %s", d).WithHint("pull the image again")
	}
	if err != nil {
		return nil, fmt.Errorf("image blob: %w", err)
	}
	return &verifyingReader{f: f, sum: sha256.New(), want: d, path: path}, nil
}

// Read returns a blob of at most limit bytes, verified.
func (s *Store) Read(d v1.Hash, limit int64) ([]byte, error) {
	r, err := s.Open(d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size, _ := s.Size(d); size > limit {
		return nil, fault.Newf(fault.Invalid, "image_blob_large", "the blob %s has %d bytes, and the limit for its kind is %d", d, size, limit)
	}
	return io.ReadAll(r)
}

// verifyingReader reads a blob and compares its digest at the end.
type verifyingReader struct {
	f    *os.File
	sum  hash.Hash
	want v1.Hash
	path string
}

// Read implements io.Reader.
func (v *verifyingReader) Read(p []byte) (int, error) {
	n, err := v.f.Read(p)
	v.sum.Write(p[:n])
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	if hex.EncodeToString(v.sum.Sum(nil)) != v.want.Hex {
		// A later read would fail as well, and a pull would assume that the blob exists.
		if err := os.Remove(v.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, fmt.Errorf("remove the corrupt blob %s: %w", v.want, err)
		}
		return n, fault.Newf(fault.Unavailable, CodeCorrupt, "the content of the blob %s on this disk has changed, and it was removed", v.want).
			WithHint("pull the image again")
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (v *verifyingReader) Close() error { return v.f.Close() }

// Put stores the given content and returns its digest.
func (s *Store) Put(data []byte) (v1.Hash, error) {
	sum := sha256.Sum256(data)
	d := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	path, err := s.path(d)
	if err != nil {
		return d, err
	}
	if size, ok := s.Size(d); ok && size == int64(len(data)) {
		return d, nil
	}
	err = durable.Replace(path, data, durable.Options{Draft: ".put-*", Mode: 0o600, Sync: true, Step: s.step})
	return d, err
}

// List returns all blobs with their sizes.
func (s *Store) List() (map[v1.Hash]int64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("image blobs: %w", err)
	}
	out := make(map[v1.Hash]int64, len(entries))
	for _, e := range entries {
		if !hexDigest.MatchString(e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[v1.Hash{Algorithm: "sha256", Hex: e.Name()}] = info.Size()
	}
	return out, nil
}

// Remove removes a blob. It succeeds if the blob does not exist.
func (s *Store) Remove(d v1.Hash) error {
	path, err := s.path(d)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep removes files of crashes: drafts that no process is writing and that are older than
// olderThan. It keeps newer drafts, so that a pull can continue them.
func (s *Store) Sweep(olderThan time.Duration) (freed int64, err error) {
	var errs []error
	for _, dir := range []string{s.drafts, s.dir} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return freed, fmt.Errorf("image blobs: %w", err)
		}
		for _, e := range entries {
			if dir == s.dir && hexDigest.MatchString(e.Name()) {
				continue
			}
			n, err := sweepOne(filepath.Join(dir, e.Name()), olderThan)
			freed += n
			errs = append(errs, err)
		}
	}
	return freed, errors.Join(errs...)
}

// sweepOne removes one draft, and returns its size if it did.
func sweepOne(path string, olderThan time.Duration) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || time.Since(info.ModTime()) < olderThan {
		return 0, err
	}
	if locked, err := lock(f); err != nil || !locked {
		return 0, err
	}
	return info.Size(), os.Remove(path)
}

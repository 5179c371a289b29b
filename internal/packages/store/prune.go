package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// draftMaxAge is the age after which an unfinished file counts as left behind by a crash.
const draftMaxAge = time.Hour

// Listed is an entry with the time of its last use.
type Listed struct {
	Entry
	Used time.Time `json:"used"`
	path string
}

// Pruned is the result of Prune.
type Pruned struct {
	Entries int   `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// List returns all entries, ordered by ecosystem, name, version and key.
func (s *Store) List() ([]Listed, error) {
	var list []Listed
	err := s.walk(entriesDir, func(path string, _ fs.FileInfo) error {
		f, err := os.Open(path)
		if err != nil {
			return ignoreMissing(err)
		}
		defer f.Close()
		e, err := readEntry(f)
		if err != nil {
			return nil //nolint:nilerr // A damaged entry cannot be listed. The next use of its URL replaces it.
		}
		listed := Listed{Entry: e, Used: e.Fetched, path: path}
		if at, ok := lastRead(filepath.Join(s.dir, shardPath(blobsDir, e.SHA256))); ok && at.After(listed.Used) {
			listed.Used = at
		}
		list = append(list, listed)
		return nil
	})
	slices.SortFunc(list, func(a, b Listed) int {
		for _, c := range []int{
			strings.Compare(string(a.Ecosystem), string(b.Ecosystem)), strings.Compare(a.Name, b.Name), strings.Compare(a.Version, b.Version),
		} {
			if c != 0 {
				return c
			}
		}
		return strings.Compare(a.Key, b.Key)
	})
	return list, err
}

// lastRead returns when a file was last read, as far as its file system records it.
func lastRead(path string) (time.Time, bool) {
	var info unix.Stat_t
	if unix.Lstat(path, &info) != nil {
		return time.Time{}, false
	}
	return time.Unix(info.Atim.Unix()).UTC(), true
}

// Prune removes the least recently used entries until the contents take at most maxBytes. It also
// removes contents without an entry.
func (s *Store) Prune(maxBytes int64) (Pruned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prune(maxBytes)
}

func (s *Store) prune(maxBytes int64) (Pruned, error) {
	var out Pruned
	list, err := s.List()
	if err != nil {
		return out, err
	}
	slices.SortStableFunc(list, func(a, b Listed) int { return b.Used.Compare(a.Used) })
	remaining, total := map[string]bool{}, int64(0)
	for _, e := range list {
		size := e.Size
		if remaining[e.SHA256] {
			size = 0
		}
		if total+size <= maxBytes {
			total += size
			remaining[e.SHA256] = true
			continue
		}
		if err := os.Remove(e.path); ignoreMissing(err) != nil {
			return out, err
		}
		out.Entries++
	}
	err = s.walk(blobsDir, func(path string, info fs.FileInfo) error {
		// The entry of a new content may not have been written yet.
		if remaining[filepath.Base(path)] || time.Since(info.ModTime()) < time.Minute && !inList(list, filepath.Base(path)) {
			return nil
		}
		out.Bytes += info.Size()
		return ignoreMissing(os.Remove(path))
	})
	if err != nil {
		return out, err
	}
	return out, s.walk(resultsDir, func(path string, info fs.FileInfo) error {
		if _, err := os.Lstat(filepath.Join(s.dir, shardPath(blobsDir, filepath.Base(path)))); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return ignoreMissing(os.Remove(path))
	})
}

func inList(list []Listed, sum string) bool {
	return slices.ContainsFunc(list, func(e Listed) bool { return e.SHA256 == sum })
}

// walk calls do for each complete file of a kind, and removes unfinished files of crashes.
func (s *Store) walk(kind string, do func(path string, info fs.FileInfo) error) error {
	return filepath.WalkDir(filepath.Join(s.dir, kind), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		if strings.HasPrefix(d.Name(), ".") {
			if time.Since(info.ModTime()) > draftMaxAge {
				return ignoreMissing(os.Remove(path))
			}
			return nil
		}
		return do(path, info)
	})
}

// ignoreMissing ignores that another process has already removed a file.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Verified is the result of Verify.
type Verified struct {
	Contents int   // contents that are what their names say
	Bytes    int64 // of these
	// Damaged are the digests of contents that were removed, because they are not what their names
	// say.
	Damaged []string
}

// Verify reads each content and compares it with its digest. It removes damaged ones, which are
// fetched again when they are needed. Readers compare the digest of what they serve in any case.
func (s *Store) Verify(ctx context.Context) (Verified, error) {
	var out Verified
	err := s.walk(blobsDir, func(path string, _ fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, sum, err := sumOf(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if sum == filepath.Base(path) {
			out.Contents++
			out.Bytes += n
			return nil
		}
		out.Damaged = append(out.Damaged, filepath.Base(path))
		return ignoreMissing(os.Remove(path))
	})
	s.noteDamaged(len(out.Damaged))
	return out, err
}

func sumOf(path string) (int64, string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, f)
	return n, hex.EncodeToString(sum.Sum(nil)), err
}

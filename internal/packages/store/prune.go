package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// draftLife is how old an unfinished file must be to count as left behind by a crash.
const draftLife = time.Hour

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
			return gone(err)
		}
		defer f.Close()
		e, err := readEntry(f)
		if err != nil {
			return nil //nolint:nilerr // not an entry, so nothing to list; a use replaces it
		}
		one := Listed{Entry: e, Used: e.Fetched, path: path}
		if at, ok := lastRead(filepath.Join(s.dir, place(blobsDir, e.SHA256))); ok && at.After(one.Used) {
			one.Used = at
		}
		list = append(list, one)
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

// lastRead returns when a file was last read, as exactly as its file system notes it.
func lastRead(path string) (time.Time, bool) {
	var info unix.Stat_t
	if unix.Lstat(path, &info) != nil {
		return time.Time{}, false
	}
	return time.Unix(info.Atim.Unix()).UTC(), true
}

// Prune removes the least recently used entries until the contents take at most so many bytes, and
// contents without an entry.
func (s *Store) Prune(most int64) (Pruned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prune(most)
}

func (s *Store) prune(most int64) (Pruned, error) {
	var out Pruned
	list, err := s.List()
	if err != nil {
		return out, err
	}
	slices.SortStableFunc(list, func(a, b Listed) int { return b.Used.Compare(a.Used) })
	kept, total := map[string]bool{}, int64(0)
	for _, e := range list {
		size := e.Size
		if kept[e.SHA256] {
			size = 0
		}
		if total+size <= most {
			total += size
			kept[e.SHA256] = true
			continue
		}
		if err := os.Remove(e.path); gone(err) != nil {
			return out, err
		}
		out.Entries++
	}
	err = s.walk(blobsDir, func(path string, info fs.FileInfo) error {
		// A content without an entry may be one whose entry is just being written.
		if kept[filepath.Base(path)] || time.Since(info.ModTime()) < time.Minute && !inList(list, filepath.Base(path)) {
			return nil
		}
		out.Bytes += info.Size()
		return gone(os.Remove(path))
	})
	return out, err
}

func inList(list []Listed, sum string) bool {
	return slices.ContainsFunc(list, func(e Listed) bool { return e.SHA256 == sum })
}

// walk calls do for each complete file of a kind, and removes what crashes left behind.
func (s *Store) walk(kind string, do func(path string, info fs.FileInfo) error) error {
	return filepath.WalkDir(filepath.Join(s.dir, kind), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return gone(err)
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return gone(err)
		}
		if strings.HasPrefix(d.Name(), ".") {
			if time.Since(info.ModTime()) > draftLife {
				return gone(os.Remove(path))
			}
			return nil
		}
		return do(path, info)
	})
}

// gone ignores that another process removed a file first.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

package retained

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// Files has the files of a sandbox that has ended, from its retained changes. Unchanged files are
// as at its start.
type Files struct {
	dir      string
	tree     []changeset.Entry          // all entries, by path
	newIndex map[string]int             // number of each new entry, by path
	files    map[string]changeset.Entry // the entries of tree, by path
}

var _ changeset.Source = (*Files)(nil)

// Files opens the retained changes of a sandbox. start is its tree at the start.
func (s *Store) Files(id string, start []changeset.Entry) (*Files, error) {
	return s.Part(id, start, func(name string) (string, bool) { return name, true })
}

// Part is like Files, for some of the files. name returns a path's name within the part, and
// whether it belongs to the part. start has the names of the part.
func (s *Store) Part(id string, start []changeset.Entry, name func(string) (string, bool)) (*Files, error) {
	if _, err := s.Meta(id); err != nil {
		return nil, err
	}
	b := &Files{dir: filepath.Join(s.at(id), filesName), newIndex: map[string]int{}, files: map[string]changeset.Entry{}}
	now, err := readTree(filepath.Join(s.at(id), newName))
	if err != nil {
		return nil, err
	}
	gone, err := readTree(filepath.Join(s.at(id), goneName))
	if err != nil {
		return nil, err
	}
	for _, e := range start {
		b.files[e.Path] = e
	}
	for _, e := range gone {
		if inPart, ok := name(e.Path); ok {
			delete(b.files, inPart)
		}
	}
	for i, e := range now {
		inPart, ok := name(e.Path)
		if !ok {
			continue
		}
		e.Path = inPart
		b.newIndex[e.Path] = i
		b.files[e.Path] = e
	}
	for _, e := range b.files {
		b.tree = append(b.tree, e)
	}
	slices.SortFunc(b.tree, func(x, y changeset.Entry) int { return strings.Compare(x.Path, y.Path) })
	return b, nil
}

func readTree(name string) ([]changeset.Entry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("kept changes: %w", err)
	}
	defer f.Close()
	// The sandbox chose the names, so they are checked as when they were stored.
	return changeset.ReadTree(f, changeset.Bounds{})
}

// Tree implements changeset.Source.
func (b *Files) Tree(ctx context.Context, req changeset.TreeRequest) (io.ReadCloser, error) {
	return stream(func(w io.Writer) error {
		out := changeset.NewEncoder(w)
		list := b.tree
		if req.Paths != nil {
			list = nil
			for _, p := range req.Paths {
				if e, ok := b.files[string(p)]; ok {
					list = append(list, e)
				}
			}
		}
		for _, e := range list {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if e.Type != changeset.Dir && e.CTime.Before(req.Newer) {
				continue
			}
			if err := out.Put(e); err != nil {
				return err
			}
		}
		return out.Close()
	}), nil
}

// Redactor implements changeset.Source. Hidden files were removed before the changes were stored.
func (*Files) Redactor() changeset.Redactor { return nil }

// Pack implements changeset.Source. Only changed files have content.
func (b *Files) Pack(ctx context.Context, req changeset.PackRequest) (io.ReadCloser, error) {
	return stream(func(w io.Writer) error {
		out := tar.NewWriter(w)
		count := 0
		for _, p := range req.Paths {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			ok, err := b.pack(out, string(p), req.FileBytes)
			if err != nil {
				return err
			}
			if ok {
				count++
			}
		}
		end := &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{changeset.PackEnd: strconv.Itoa(count)}}
		if err := out.WriteHeader(end); err != nil {
			return err
		}
		return out.Close()
	}), nil
}

func (b *Files) pack(out *tar.Writer, name string, limit int64) (bool, error) {
	n, ok := b.newIndex[name]
	if !ok || b.files[name].Type != changeset.Regular {
		return false, nil
	}
	f, err := os.Open(filepath.Join(b.dir, contentName(n)))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // it was left out when the changes were stored
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() > limit {
		return false, err
	}
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return false, err
	}
	_, err = io.CopyN(out, f, info.Size())
	return true, err
}

// stream returns the output of write as a reader.
func stream(write func(io.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	go func() { w.CloseWithError(write(w)) }()
	return r
}

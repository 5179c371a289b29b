// Package copyfiles owns COPY and ADD: which files of a context or another stage they select, the
// digest of these files, and how they become a layer.
package copyfiles

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/patternmatcher"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// CodeMissing is the code of the error for files that do not exist.
const CodeMissing = "build_file_missing"

// Source is a tree from which files are copied.
type Source struct {
	Root *os.Root
	// Owner returns the owner and the set-id bits of a file. If it is nil, the files belong to
	// root. The tree on the host has neither: it belongs to the server's user, and has no set-id
	// bits.
	Owner func(name string) fileowners.Owner
	// Resolve returns a path with all links resolved. If it is nil, links that lead out of the tree
	// are not followed.
	Resolve func(name string) (string, error)
	// Skip reports whether a path does not belong to the tree.
	Skip func(name string) bool
	What string // for errors: "the build context", or the name of a stage
	// Packed keeps the source's archives as they are.
	Packed bool
}

// Item is one file to copy.
type Item struct {
	Name  string // path below the destination; "" is the destination itself
	from  string // path below the source
	info  fs.FileInfo
	link  string
	data  []byte // content of a file without a source
	root  *os.Root
	owner fileowners.Owner
	// packed is set for a file that is not unpacked, even if it is an archive.
	packed bool
}

// Selection is the set of files of one instruction.
type Selection struct {
	Items []Item
	// Several is set if there are several sources, so that the destination must be a directory.
	Several bool
	// Whole is set if the only source is a directory, whose content is copied.
	Whole bool
}

// Inline adds a file whose content is in the Dockerfile.
func (s *Selection) Inline(name string, data []byte) {
	s.Several = s.Several || len(s.Items) > 0
	s.Items = append(s.Items, Item{Name: path.Base(name), data: append([]byte{}, data...)})
}

// SelectFile adds one regular file of a source under another name.
func (s *Selection) SelectFile(src Source, from, name string) error {
	info, err := src.Root.Lstat(from)
	if err != nil {
		return src.missing(from, err)
	}
	if !info.Mode().IsRegular() {
		return fault.Newf(fault.Invalid, "build_file_refused", "%s is not a file", src.What)
	}
	s.Several = s.Several || len(s.Items) > 0
	s.Items = append(s.Items, Item{Name: name, from: from, info: info, root: src.Root, packed: src.Packed})
	return nil
}

// Options are the options of an instruction.
type Options struct {
	Exclude []string
	Parents bool
}

// Select returns the files that match patterns.
func (s *Selection) Select(ctx context.Context, src Source, patterns []string, o Options) error {
	exclude, err := patternmatcher.New(o.Exclude)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "build_pattern_invalid", "--exclude has an invalid pattern")
	}
	w := &walk{ctx: ctx, src: src, exclude: exclude, out: s}
	count := 0
	for _, pattern := range patterns {
		found, err := src.match(pattern)
		if err != nil {
			return err
		}
		count += len(found)
		for _, name := range found {
			if err := w.source(name, pattern, o.Parents, len(patterns) == 1 && len(found) == 1); err != nil {
				return err
			}
		}
	}
	s.Several = s.Several || count > 1 || o.Parents
	return nil
}

// clean returns a path of an instruction below the source.
func clean(name string) string {
	if name = strings.TrimPrefix(path.Clean("/"+name), "/"); name == "" {
		return "."
	}
	return name
}

// match returns the paths that match a pattern. A pattern without a wildcard must match an existing
// path.
func (src Source) match(pattern string) ([]string, error) {
	name := clean(pattern)
	if !strings.ContainsAny(name, "*?[") {
		if _, err := src.stat(name); err != nil {
			return nil, src.missing(pattern, err)
		}
		return []string{name}, nil
	}
	found := slices.DeleteFunc(globDirs(src.Root, name), func(name string) bool { return src.Skip != nil && src.Skip(name) })
	if len(found) == 0 {
		return nil, src.missing(pattern, fs.ErrNotExist)
	}
	return found, nil
}

// globDirs is fs.Glob, with ** for any number of directories.
func globDirs(root *os.Root, pattern string) (found []string) {
	if !strings.Contains(pattern, "**") {
		found, _ = fs.Glob(root.FS(), pattern)
		return found
	}
	m, err := patternmatcher.New([]string{pattern})
	if err != nil {
		return nil
	}
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if ok, err := m.MatchesOrParentMatches(name); err == nil && ok {
				found = append(found, name)
			}
		}
		return nil
	})
	return found
}

// missing returns the error for a source that cannot be read.
func (src Source) missing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Newf(fault.NotFound, CodeMissing, "%.200q is not in %s", name, src.What).WithHint(".dockerignore may exclude it; paths are relative to the context")
	}
	return fault.Wrap(err, fault.Invalid, "build_file_refused", fmt.Sprintf("%.200q of %s cannot be copied: %v", name, src.What, err))
}

// stat returns the path of a file with links resolved. Links out of the tree are not followed.
func (src Source) stat(name string) (string, error) {
	if src.Resolve != nil {
		real, err := src.Resolve(name)
		if err != nil {
			return "", err
		}
		if real == "" {
			real = "."
		}
		_, err = src.Root.Lstat(real)
		return real, err
	}
	_, err := src.Root.Stat(name)
	return name, err
}

// walk adds the files of sources to a selection.
type walk struct {
	ctx     context.Context
	src     Source
	exclude *patternmatcher.PatternMatcher
	out     *Selection
}

// source adds a source: a file, or the content of a directory. single is true for the only source
// of an instruction.
func (w *walk) source(name, pattern string, parents, single bool) error {
	real, err := w.src.stat(name)
	if err != nil {
		return w.src.missing(name, err)
	}
	info, err := w.src.Root.Stat(real)
	if err != nil {
		return w.src.missing(name, err)
	}
	if !info.IsDir() {
		to := path.Base(name)
		if parents {
			to = preservedPath(name, pattern)
		}
		if excluded, err := w.exclude.MatchesOrParentMatches(path.Base(name)); err != nil || excluded {
			return err
		}
		return w.add(to, real, info)
	}
	to := ""
	if parents {
		to = preservedPath(name, pattern)
	}
	w.out.Whole = w.out.Whole || single && !parents
	return w.directory(to, real, ".")
}

// preservedPath returns the part of a source's path that --parents preserves: everything after
// "/./", or all of it.
func preservedPath(name, pattern string) string {
	if before, _, ok := strings.Cut(pattern, "/./"); ok {
		return strings.TrimPrefix(strings.TrimPrefix(name, clean(before)), "/")
	}
	return name
}

// directory adds a directory. rel is its path below the source, for --exclude.
func (w *walk) directory(to, from, rel string) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	stat := w.src.Root.Lstat
	if rel == "." {
		stat = w.src.Root.Stat // a link that the instruction names is followed
	}
	info, err := stat(from)
	if err != nil {
		return w.src.missing(from, err)
	}
	if err := w.add(to, from, info); err != nil {
		return err
	}
	entries, err := fs.ReadDir(w.src.Root.FS(), from)
	if err != nil {
		return w.src.missing(from, err)
	}
	for _, e := range entries {
		child, below := path.Join(from, e.Name()), path.Join(rel, e.Name())
		if w.src.Skip != nil && w.src.Skip(child) {
			continue
		}
		excluded, err := w.exclude.MatchesOrParentMatches(below)
		if err != nil {
			return err
		}
		if e.IsDir() {
			if excluded {
				continue
			}
			err = w.directory(path.Join(to, e.Name()), child, below)
		} else if !excluded {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				err = w.add(path.Join(to, e.Name()), child, info)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds one file, without the files below it.
func (w *walk) add(to, from string, info fs.FileInfo) error {
	i := Item{Name: to, from: from, info: info, root: w.src.Root, packed: w.src.Packed}
	if w.src.Owner != nil {
		i.owner = w.src.Owner(from)
	}
	switch {
	case info.IsDir(), info.Mode().IsRegular():
	case info.Mode()&fs.ModeSymlink != 0:
		var err error
		if i.link, err = w.src.Root.Readlink(from); err != nil {
			return w.src.missing(from, err)
		}
	default:
		return fault.Newf(fault.Invalid, "build_file_refused", "%.200q of %s is a device, a pipe or a socket", from, w.src.What)
	}
	w.out.Items = append(w.out.Items, i)
	return nil
}

// open opens the content of a file.
func (i Item) open() (io.ReadCloser, error) {
	if i.data != nil {
		return io.NopCloser(strings.NewReader(string(i.data))), nil
	}
	f, err := i.root.OpenFile(i.from, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, fault.Newf(fault.Conflict, "build_file_changed", "%.200q changed while it was copied", i.from)
	}
	return f, nil
}

// Digest returns a digest of a selection: names, kinds, modes, owners and bytes. Times do not
// count, so that a fresh checkout of the same files has the same digest.
func (s *Selection) Digest() (string, error) {
	sum := sha256.New()
	first := map[inode]string{}
	for _, i := range s.sorted() {
		mode := fs.FileMode(0o644)
		if i.info != nil {
			mode = i.info.Mode()
		}
		fmt.Fprintf(sum, "%q %v %d %d %o %q\n", i.Name, mode, i.owner.UID, i.owner.GID, i.owner.SetID, i.link)
		if !mode.IsRegular() {
			continue
		}
		if id, linked := i.inode(); linked {
			if name, ok := first[id]; ok {
				fmt.Fprintf(sum, "link %q\n", name)
				continue
			}
			first[id] = i.Name
		}
		f, err := i.open()
		if err != nil {
			return "", err
		}
		content := sha256.New()
		_, err = io.Copy(content, f)
		if err = errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%x\n", content.Sum(nil))
	}
	fmt.Fprintf(sum, "several=%v whole=%v", s.Several, s.Whole)
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sorted returns the files sorted by name. If a name occurs twice, the last file counts.
func (s *Selection) sorted() []Item {
	byName := map[string]Item{}
	for _, i := range s.Items {
		byName[i.Name] = i
	}
	list := make([]Item, 0, len(byName))
	for _, i := range byName {
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b Item) int { return strings.Compare(a.Name, b.Name) })
	return list
}

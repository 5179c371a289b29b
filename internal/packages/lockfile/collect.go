package lockfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages"
)

// Limits of the search in a workspace.
const (
	// searchDepth is the number of levels of directories that are searched, with the workspace
	// itself.
	searchDepth = 5
	maxDirs     = 4096
	maxDirFiles = 20_000
	maxFiles    = 256
	// maxTotal limits the size of all lockfiles together.
	maxTotal = 32 << 20
	// maxIncludes limits the files to which one requirements file refers, and maxIncludeDepth how
	// often one leads to the next.
	maxIncludes     = 64
	maxIncludeDepth = 8
)

// parsers are the formats by the names of their files.
var parsers = map[string]func(text []byte, c *collector) error{
	"package-lock.json": parseNPM, "npm-shrinkwrap.json": parseNPM, "yarn.lock": parseYarn, "pnpm-lock.yaml": parsePNPM,
	"go.sum": parseGoSum, "go.work.sum": parseGoSum, "Cargo.lock": parseCargo,
	"poetry.lock": parsePoetry, "uv.lock": parseUV, "Pipfile.lock": parsePipfile,
}

// parserOf returns the parser of a file's name, or nil.
func parserOf(name string) func(text []byte, c *collector) error {
	if strings.HasPrefix(name, "requirements") && strings.HasSuffix(name, ".txt") {
		return parseRequirements
	}
	return parsers[name]
}

// ecosystemOf returns the ecosystem of a lockfile's name, or "" for another name.
func ecosystemOf(name string) packages.Ecosystem {
	switch {
	case parserOf(name) == nil:
		return ""
	case strings.HasPrefix(name, "go."):
		return packages.Go
	case name == "Cargo.lock":
		return packages.Crates
	case name == "poetry.lock" || name == "uv.lock" || name == "Pipfile.lock" || strings.HasSuffix(name, ".txt"):
		return packages.PyPI
	}
	return packages.NPM
}

// notSearched are directories with installed packages and built files. The lockfiles of packages
// in them are not the project's.
var notSearched = []string{"node_modules", "vendor", "target", "site-packages", "__pycache__", "dist", "build", "venv", "bower_components"}

// Collect reads the lockfiles in a workspace of this host. It never leaves the directory: links are
// not followed, because a workspace may have some that lead to other projects' lockfiles.
func Collect(ctx context.Context, dir string) (*Set, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "workspace_invalid", "the workspace cannot be opened to read its lockfiles")
	}
	defer root.Close()
	s := &search{root: root, collector: newCollector(), seen: map[string]bool{}}
	// Directories of one level are searched before those below them, in the order of their names,
	// so a limit always leaves out the same ones.
	level := []string{"."}
	for depth := 0; depth < searchDepth && len(level) > 0; depth++ {
		var next []string
		for _, at := range level {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if s.dirs++; s.dirs > maxDirs {
				s.collector.skip(at, "the workspace has more directories than are searched")
				return s.collector.set()
			}
			next = append(next, s.directory(ctx, at)...)
		}
		level = next
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.collector.set()
}

// None returns the set of a sandbox without a workspace.
func None() *Set { return &Set{NoWorkspace: true} }

type search struct {
	root      *os.Root
	collector *collector
	dirs      int
	files     int
	size      int64
	// seen are the files that were read, so that none is read twice.
	seen map[string]bool
}

// directory reads the lockfiles of a directory, and returns its directories.
func (s *search) directory(ctx context.Context, at string) (below []string) {
	dir, err := s.root.OpenFile(at, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		s.collector.skip(at, "it cannot be read")
		return nil
	}
	list, err := dir.ReadDir(maxDirFiles)
	dir.Close()
	if err != nil && !errors.Is(err, io.EOF) || len(list) == maxDirFiles {
		s.collector.skip(at, "it cannot be read, or has too many files")
		return nil
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, f := range list {
		name := f.Name()
		switch {
		case f.IsDir() && !strings.HasPrefix(name, ".") && !slices.Contains(notSearched, name):
			below = append(below, path.Join(at, name))
		case f.Type().IsRegular():
			if parse := parserOf(name); parse != nil && ctx.Err() == nil {
				s.file(path.Join(at, name), parse, nil)
			}
		case f.Type()&fs.ModeSymlink != 0 && parserOf(name) != nil:
			s.collector.skip(path.Join(at, name), "it is a link")
		}
	}
	return below
}

// file reads one lockfile, and those to which it refers. Nothing of a file that cannot be read is in
// the set. from are the files that lead to it.
func (s *search) file(at string, parse func(text []byte, c *collector) error, from []string) {
	if slices.Contains(from, at) {
		s.collector.skip(at, "it refers to itself")
		return
	}
	if s.seen[at] {
		return
	}
	s.seen[at] = true
	if s.files++; s.files > maxFiles {
		if s.files == maxFiles+1 {
			s.collector.skip(at, "the workspace has more lockfiles than are read")
		}
		return
	}
	text, err := s.read(at)
	if err != nil {
		s.collector.skip(at, err.Error())
		return
	}
	one := newCollector()
	if err := parse(text, one); err != nil {
		s.collector.skip(at, err.Error())
		return
	}
	if one.without > 0 {
		s.collector.skip(at, fmt.Sprintf("%d entries have no digest of an archive of a registry", one.without))
	}
	s.collector.files++
	if err := s.collector.join(one); err != nil {
		s.collector.skip(at, err.Error())
	}
	for _, name := range one.includes {
		s.include(at, name, append(from[:len(from):len(from)], at))
	}
}

// include reads a file to which a requirements file refers.
func (s *search) include(at, name string, from []string) {
	to := path.Join(path.Dir(at), name) // pip looks beside the file that names it
	switch {
	case strings.Contains(name, "://") || strings.HasPrefix(name, "file:"):
		s.collector.skip(at, "it refers to an address, which is not read: "+name)
	case path.IsAbs(name) || !fs.ValidPath(to):
		s.collector.skip(at, "it refers to a file outside of the workspace: "+name)
	case len(from) > maxIncludeDepth:
		s.collector.skip(to, "too many files lead to it")
	case s.linked(to):
		s.collector.skip(to, "it is a link, or below one")
	default:
		s.file(to, parseRequirements, from)
	}
}

// linked reports whether a path has a link in it. os.Root keeps links inside of the workspace, but
// one could lead to a directory that is not searched, such as that of another project.
func (s *search) linked(at string) bool {
	for ; at != "."; at = path.Dir(at) {
		if info, err := s.root.Lstat(at); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

// read returns the content of a regular file.
func (s *search) read(at string) ([]byte, error) {
	// Opening a pipe would wait for its writer, so it is opened without waiting. It may have
	// replaced the file since its directory was read.
	f, err := s.root.OpenFile(at, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.New("it cannot be opened")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	if len(text) > maxFile {
		return nil, errTooLarge
	}
	if s.size += int64(len(text)); s.size > maxTotal {
		return nil, errors.New("all lockfiles together are larger than the limit")
	}
	return text, nil
}

// join adds the entries of one lockfile. It adds them in order, so a limit always leaves out the
// same ones.
func (c *collector) join(one *collector) error {
	for _, k := range sortedKeys(one.entries) {
		for _, text := range sortedTexts(one.entries[k]) {
			if err := c.put(k, text); err != nil {
				return err
			}
		}
	}
	return nil
}

package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
)

// removedType marks a file of the host that was removed in the sandbox.
const removedType = "gone"

// hostFiles gives access to the host's files that a sandbox sees. The sandbox's writes are in
// State.files.
type hostFiles struct {
	roots    map[string]*os.Root // directories of the host, by the key at which they are shown
	hidden   []string            // keys at which nothing can be read or changed
	readOnly []string            // keys at and below which nothing can be changed
}

var errReadOnly = errors.New("the file system is read-only")

// openHostFiles opens the host's files for a sandbox. Links cannot lead outside of these
// directories.
func openHostFiles(spec engine.Spec) (*hostFiles, error) {
	s := &hostFiles{roots: map[string]*os.Root{}}
	binds := spec.Mounts
	if spec.Workspace != "" {
		binds = append([]engine.Bind{{Source: spec.Workspace, Target: "/workspace"}}, binds...)
	}
	for _, b := range binds {
		root, err := os.OpenRoot(b.Source)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("show %s: %w", b.Source, err), s.close())
		}
		s.roots[key(b.Target)] = root
	}
	for _, name := range spec.Hide {
		s.hidden = append(s.hidden, key(name))
	}
	for _, name := range spec.ReadOnly {
		if f, ok := s.find(key(name)); !ok || f.Type == linkType || !path.IsAbs(name) {
			return nil, errors.Join(fault.Newf(fault.Invalid, "read_only_invalid", "%s cannot be made read-only", name), s.close())
		}
		s.readOnly = append(s.readOnly, key(name))
	}
	return s, nil
}

// close closes the directories.
func (s *hostFiles) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, root := range s.roots {
		errs = append(errs, root.Close())
	}
	return errors.Join(errs...)
}

// within reports whether a name is one of dirs, and whether it is below one of them.
func within(name string, dirs []string) (at, below bool) {
	for _, dir := range dirs {
		at = at || name == dir
		below = below || strings.HasPrefix(name, dir+"/")
	}
	return at, below
}

// find returns the host's file at a key.
func (s *hostFiles) find(name string) (file, bool) {
	if s == nil {
		return file{}, false
	}
	at, below := within(name, s.hidden)
	if below {
		return file{}, false
	}
	for target, root := range s.roots {
		rel, ok := strings.CutPrefix(name+"/", target+"/")
		if !ok {
			continue
		}
		rel = path.Clean("./" + rel)
		info, err := root.Lstat(rel)
		if err != nil {
			return file{}, false
		}
		f := file{Type: fileType, UID: engine.UserID}
		switch {
		case info.IsDir():
			f.Type = dirType
		case info.Mode()&fs.ModeSymlink != 0:
			f.Type = linkType
			f.Text, err = root.Readlink(rel)
		case !at:
			var text []byte
			text, err = root.ReadFile(rel)
			f.Text = string(text)
		}
		return f, err == nil
	}
	return file{}, false
}

// names lists the files of the host at and below a key.
func (s *hostFiles) names(name string) (list []string) {
	if s == nil {
		return nil
	}
	for target, root := range s.roots {
		_ = fs.WalkDir(root.FS(), ".", func(rel string, _ fs.DirEntry, err error) error {
			if k := path.Join(target, rel); err == nil && (k == name || strings.HasPrefix(k, name+"/")) {
				if _, ok := s.find(k); ok {
					list = append(list, k)
				}
			}
			return nil
		})
	}
	return list
}

// guard returns an error if the file at a key must not be changed.
func (s *hostFiles) guard(name string) error {
	if s == nil {
		return nil
	}
	for _, list := range [][]string{s.hidden, s.readOnly} {
		if at, below := within(name, list); at || below {
			return fmt.Errorf("%s: %w", name, errReadOnly)
		}
	}
	return nil
}

// guardTree returns an error if the file at a key or a file below it must not be changed.
func (s *hostFiles) guardTree(name string) error {
	if s == nil {
		return nil
	}
	for _, protected := range slices.Concat(s.hidden, s.readOnly) {
		if strings.HasPrefix(protected, name+"/") {
			return fmt.Errorf("%s: %w", protected, errReadOnly)
		}
	}
	return s.guard(name)
}

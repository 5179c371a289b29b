package fake

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// file is a file of a fake sandbox.
type file struct {
	Type string // fileType, dirType or linkType
	Text string // the content, or the target of the link
	UID  uint32

	command int // the process of the last command that changed it
}

const (
	fileType = "file"
	dirType  = "dir"
	linkType = "link"
)

// initialDirs lists the directories that exist from the start.
var initialDirs = []string{"", "tmp", "var", "var/tmp", "home", "home/user", "root", "workspace", "etc", "dev", "dev/shm"}

// key returns the key of an absolute path in State.files.
func key(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// find returns the file at a key. The caller holds the lock of the state.
func (s *State) find(key string) (file, bool) {
	f, ok := s.files[key]
	switch {
	case ok:
		return f, f.Type != removedType
	case slices.Contains(initialDirs, key):
		return file{Type: dirType}, true
	}
	return s.host.find(key)
}

// follow is like find, but follows links. It also returns the key of the file. The caller holds the
// lock of the state.
func (s *State) follow(key string) (file, string, bool) {
	const maxLinks = 40
	for range maxLinks {
		f, ok := s.find(key)
		if !ok || f.Type != linkType {
			return f, key, ok
		}
		if key = strings.TrimPrefix(path.Join("/", path.Dir(key), f.Text), "/"); path.IsAbs(f.Text) {
			key = strings.TrimPrefix(path.Clean(f.Text), "/")
		}
	}
	return file{}, key, false
}

// put creates or changes a file, whose directory must exist.
func (s *State) put(key string, f file) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Type == fileType {
		if existing, target, ok := s.follow(key); ok && existing.Type == dirType {
			return fmt.Errorf("%s: is a directory", key)
		} else if ok {
			key = target
		}
	}
	if dir, _, ok := s.follow(strings.TrimPrefix(path.Dir("/"+key), "/")); !ok || dir.Type != dirType {
		return fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	if _, ok := s.find(key); ok && f.Type != fileType {
		return fmt.Errorf("%s: %w", key, fs.ErrExist)
	}
	if err := s.host.guard(key); err != nil {
		return err
	}
	s.files[key] = f
	return nil
}

// text returns the content of a file.
func (s *State) text(key string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, _, ok := s.follow(key)
	switch {
	case !ok:
		return "", fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	case f.Type != fileType:
		return "", fmt.Errorf("%s: is a directory", key)
	}
	return f.Text, nil
}

// below lists the keys at and below a key, the deepest last.
func (s *State) below(key string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		if name == key || strings.HasPrefix(name, key+"/") {
			list = append(list, name)
		}
	}
	list = append(list, s.host.names(key)...)
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(name string) bool {
		_, ok := s.find(name)
		return !ok
	})
}

// forget removes one name, also if it is a file of the host.
func (s *State) forget(name string) {
	delete(s.files, name)
	if _, ok := s.host.find(name); ok {
		s.files[name] = file{Type: removedType}
	}
}

// drop removes the file at a key. If recursive is set, it also removes a directory with all files
// below it.
func (s *State) drop(key string, recursive bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.below(key)
	if len(names) == 0 {
		return fmt.Errorf("%s: %w", key, fs.ErrNotExist)
	}
	if f, _ := s.find(key); f.Type == dirType && !recursive {
		return fmt.Errorf("%s: is a directory", key)
	}
	if err := s.host.guardTree(key); err != nil {
		return err
	}
	for _, name := range names {
		s.forget(name)
	}
	return nil
}

// move moves everything at and below a key to another key, atomically.
func (s *State) move(from, to string, command int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, _, ok := s.follow(to); ok && f.Type == dirType {
		to = path.Join(to, path.Base(from))
	}
	names := s.below(from)
	if len(names) == 0 {
		return fmt.Errorf("%s: %w", from, fs.ErrNotExist)
	}
	if err := errors.Join(s.host.guardTree(from), s.host.guardTree(to)); err != nil {
		return err
	}
	for _, name := range names {
		f, _ := s.find(name)
		f.command = command
		s.forget(name)
		s.files[to+strings.TrimPrefix(name, from)] = f
	}
	return nil
}

// pack writes the files of a state as a tar.
func pack(s *State, w io.Writer) error {
	files := s.copy().Files
	t := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		h := &tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg, Size: int64(len(f.Text)), Uid: int(f.UID)}
		switch f.Type {
		case dirType:
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		case linkType:
			h.Typeflag, h.Size, h.Linkname = tar.TypeSymlink, 0, f.Text
		case removedType:
			h.Typeflag, h.Size = tar.TypeChar, 0 // device 0:0, as in an overlay
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if _, err := io.WriteString(t, f.Text); err != nil {
			return err
		}
	}
	return t.Close()
}

// unpack reads the files of a tar that pack, or another engine, has written.
func (s *State) unpack(from io.Reader) error {
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		f := file{Type: fileType, UID: uint32(h.Uid)}
		switch h.Typeflag {
		case tar.TypeDir:
			f.Type = dirType
		case tar.TypeSymlink:
			f.Type, f.Text = linkType, h.Linkname
		case tar.TypeChar:
			f.Type = removedType
		default:
			text, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			f.Text = string(text)
		}
		s.files[key(h.Name)] = f
	}
}

// sum returns the checksum of a file's content, or of a link's target.
func (f file) sum() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(f.Text))) }

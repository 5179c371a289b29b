package copytree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Source is an open file or directory to copy.
type Source struct {
	in    int
	base  string
	entry Entry
}

// Open opens the source of a copy. A link at the end of the path is copied as a link, unless follow
// is set or the path ends in a slash.
func Open(path string, follow bool) (*Source, error) {
	contents := path == "." || strings.HasSuffix(path, "/.")
	follow = follow || contents || strings.HasSuffix(path, "/")
	clean := filepath.Clean(path)
	if follow {
		real, err := filepath.EvalSymlinks(clean)
		if err != nil {
			return nil, err
		}
		// The target's name may differ from the requested one.
		s, err := open(real)
		if err == nil {
			s.entry.Name = baseName(clean)
		}
		if err == nil && contents {
			s.entry.Name = ""
		}
		return s, err
	}
	return open(clean)
}

// baseName returns the last element of a path, or "" if it has none.
func baseName(path string) string {
	if base := filepath.Base(path); plainName(base) {
		return base
	}
	return ""
}

// open opens the source without following a link at the end of its path.
func open(path string) (*Source, error) {
	dir, base := filepath.Split(path)
	if !plainName(base) {
		dir, base = path, "."
	}
	fd, err := unix.Open(filepath.Join(dir, "."), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) {
		// O_PATH is enough for lookups, so a directory that may not be listed is not an error.
		fd, err = unix.Open(filepath.Join(dir, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	s := &Source{in: fd, base: base}
	stat, err := statNoFollow(fd, base)
	if err == nil {
		s.entry, err = entryOf(fd, base, stat)
	}
	if err == nil && s.entry.Kind == LeftOut {
		err = errors.New("the file is a socket, a device or a named pipe")
	}
	if err != nil {
		s.Close()
		return nil, &fs.PathError{Op: "copy", Path: path, Err: err}
	}
	s.entry.Name = baseName(path)
	return s, nil
}

// Close closes the source.
func (s *Source) Close() { _ = unix.Close(s.in) } // it was only read

// Entry describes the source itself.
func (s *Source) Entry() Entry { return s.entry }

// Send writes the source as a stream. Errors that the stream's reader should see are also written
// to the stream.
func (s *Source) Send(ctx context.Context, w io.Writer) error {
	out := &sender{ctx: ctx, w: NewWriter(w)}
	err := out.put(s.in, s.base, s.entry)
	if err == nil {
		return out.w.Close()
	}
	if out.broken == nil {
		err = errors.Join(err, out.w.Fail(err.Error()))
	}
	return err
}

// entryOf describes a file of a directory.
func entryOf(in int, base string, stat *unix.Stat_t) (Entry, error) {
	e := Entry{
		Name: base, Mode: stat.Mode & 0o1777, UID: stat.Uid, GID: stat.Gid,
		ModTime: time.Unix(stat.Mtim.Unix()),
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		e.Kind = Dir
	case unix.S_IFREG:
		e.Kind, e.Mode, e.Size = File, stat.Mode&0o777, stat.Size
	case unix.S_IFLNK:
		e.Kind = Link
		buffer := make([]byte, maxTarget+1)
		n, err := unix.Readlinkat(in, base, buffer)
		if err != nil {
			return e, err
		}
		if e.Target = string(buffer[:n]); n == 0 || n > maxTarget {
			e.Kind = LeftOut
		}
	default:
		e.Kind = LeftOut
	}
	return e, nil
}

// sender is the state of one call of Send.
type sender struct {
	ctx    context.Context
	w      *Writer
	broken error // error of the writer
	depth  int
	buffer []byte
}

// wrote records an error of the writer, to distinguish it from those of the file system.
func (s *sender) wrote(err error) error {
	if err != nil {
		s.broken = err
	}
	return err
}

// put sends one file, or a directory with its content.
func (s *sender) put(in int, base string, e Entry) error {
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	switch e.Kind {
	case Dir:
		return s.dir(in, base, e)
	case File:
		return s.file(in, base, e)
	case Link, LeftOut:
	}
	return s.wrote(s.w.Entry(e))
}

// dir sends a directory with its content.
func (s *sender) dir(in int, base string, e Entry) error {
	var fd int
	var err error
	if base == "." {
		fd, err = unix.Openat(in, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	} else {
		fd, err = openDir(in, base)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	defer unix.Close(fd)
	if s.depth++; s.depth > maxDepth {
		return fmt.Errorf("%s: directories are nested more than %d deep", e.Name, maxDepth)
	}
	all, err := names(fd)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	slices.Sort(all)
	if err := s.wrote(s.w.Entry(e)); err != nil {
		return err
	}
	for _, name := range all {
		stat, err := statNoFollow(fd, name)
		var sub Entry
		if err == nil {
			sub, err = entryOf(fd, name, stat)
		}
		if errors.Is(err, unix.ENOENT) {
			continue // a program removed it after the directory was listed
		}
		if err == nil {
			err = s.put(fd, name, sub)
		}
		switch {
		case err == nil:
		case s.broken != nil || s.ctx.Err() != nil:
			return err
		case sub.Kind == File && errors.Is(err, unix.ENOENT):
		default:
			return fmt.Errorf("%s/%w", e.Name, err)
		}
	}
	s.depth--
	return s.wrote(s.w.End())
}

// block is the minimum length of a run of zeros that becomes a hole.
const block = 4 << 10

// maxUnsized bounds the bytes that are read of a file that states no size, such as those of /proc.
const maxUnsized = 4 << 20

// file sends a regular file.
func (s *sender) file(in int, base string, e Entry) error {
	f, stat, err := openFile(in, base)
	if errors.Is(err, unix.ESTALE) {
		return nil // a program replaced it by another file
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	defer f.Close()
	e.Size = stat.Size
	if e.Size == 0 {
		content, err := io.ReadAll(io.LimitReader(f, maxUnsized))
		if err != nil {
			return fmt.Errorf("%s: %w", e.Name, err)
		}
		e.Size = int64(len(content))
		if err := s.wrote(s.w.Entry(e)); err != nil {
			return err
		}
		for at := 0; at < len(content); at += MaxData {
			if err := s.wrote(s.w.Data(int64(at), content[at:min(at+MaxData, len(content))])); err != nil {
				return err
			}
		}
		return s.wrote(s.w.End())
	}
	if err := s.wrote(s.w.Entry(e)); err != nil {
		return err
	}
	if err := s.content(f, e.Size); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	return s.wrote(s.w.End())
}

// content sends the parts of a file that contain data. gVisor does not report holes, so there the
// whole file is read and zeros are left out.
func (s *sender) content(f *os.File, size int64) error {
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // the rest is a hole
		}
		end := size
		if err == nil {
			end, err = unix.Seek(int(f.Fd()), begin, unix.SEEK_HOLE)
		}
		if err != nil || end <= begin {
			begin, end = at, size
		}
		if end = min(end, size); end > begin {
			if err := s.extent(f, begin, end); err != nil {
				return err
			}
		}
		at = end
	}
	return nil
}

var zeros [block]byte

// extent sends a part of a file, without its blocks of zeros.
func (s *sender) extent(f *os.File, at, end int64) error {
	if s.buffer == nil {
		s.buffer = make([]byte, MaxData)
	}
	for at < end {
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		n, err := f.ReadAt(s.buffer[:min(int64(len(s.buffer)), end-at)], at)
		if err := s.pieces(s.buffer[:n], at); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil // the file was truncated: the rest is a hole
		}
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// pieces sends data that begins at an offset, without its blocks of zeros.
func (s *sender) pieces(b []byte, at int64) error {
	from := -1
	for i := 0; i < len(b); i += block {
		piece := b[i:min(i+block, len(b))]
		empty := bytes.Equal(piece, zeros[:len(piece)])
		switch {
		case !empty && from < 0:
			from = i
		case empty && from >= 0:
			if err := s.wrote(s.w.Data(at+int64(from), b[from:i])); err != nil {
				return err
			}
			from = -1
		}
	}
	if from < 0 {
		return nil
	}
	return s.wrote(s.w.Data(at+int64(from), b[from:]))
}

package search

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxFile limits the size of a searched file. Larger files are usually data.
	maxFile = 16 << 20
	// maxFiles limits how many files one search opens.
	maxFiles = 200_000
	// maxBytes limits how much one search reads.
	maxBytes = 2 << 30
	// maxText limits how much of a line is returned.
	maxText = 400
	// sniffSize is the number of bytes at the start of a file that determine whether it is text.
	sniffSize = 8 << 10
)

type searcher struct {
	root        string
	glob        *regexp.Regexp
	line, whole *regexp.Regexp
	limit       int
	each        func(Match) error
	end         End
	found       int
	read        int64
	buf         []byte
}

// search searches all files below the root, sorted by name. It does not follow links, because their
// targets are searched in their own place.
func (s *searcher) search() error {
	// The root itself may be a link, for example to a project.
	root, err := filepath.EvalSymlinks(s.root)
	if err != nil {
		return err
	}
	s.root = root
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil:
			s.end.Skipped++
			return nil
		case d.IsDir() && path != root && (d.Name() == ".git" || d.Name() == "node_modules"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			// Skip devices and pipes, which could block the search for ever.
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if rel == "." {
			rel = filepath.Base(path)
		}
		if s.glob != nil && !s.glob.MatchString(rel) {
			return nil
		}
		return s.file(path, rel)
	})
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// file searches one file.
func (s *searcher) file(path, rel string) error {
	if s.end.Files >= maxFiles || s.read >= maxBytes {
		s.end.More = true
		return fs.SkipAll
	}
	data, ok := s.load(path)
	if !ok {
		s.end.Skipped++
		return nil
	}
	s.end.Files++
	s.read += int64(len(data))
	number, counted := 1, 0
	for pos := 0; pos < len(data); {
		at := s.whole.FindIndex(data[pos:])
		if at == nil {
			return nil
		}
		start := pos + at[0]
		begin := bytes.LastIndexByte(data[:start], '\n') + 1
		stop := len(data)
		if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
			stop = start + i
		}
		if line := data[begin:stop]; s.line.Match(line) && (len(line) > 0 || stop < len(data) || begin < stop) {
			number += bytes.Count(data[counted:begin], []byte("\n"))
			counted = begin
			if s.found >= s.limit {
				s.end.More = true
				return fs.SkipAll
			}
			s.found++
			if err := s.each(Match{Path: rel, Line: number, Text: shorten(line)}); err != nil {
				return err
			}
		}
		pos = stop + 1
	}
	return nil
}

// load reads a text file, unless it is too large.
func (s *searcher) load(path string) ([]byte, bool) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, false
	}
	// The additional byte shows whether the file has grown.
	if need := int(info.Size()) + 1; cap(s.buf) < need {
		s.buf = make([]byte, need+need/2)
	}
	buf := s.buf[:info.Size()+1]
	n, err := io.ReadFull(f, buf)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, false
	}
	data := buf[:n]
	if bytes.Contains(data, []byte("\r\n")) {
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	}
	return data, bytes.IndexByte(data[:min(len(data), sniffSize)], 0) < 0
}

// shorten returns the part of a line that is returned.
func shorten(line []byte) string {
	text := strings.ToValidUTF8(string(line[:min(len(line), maxText)]), "\uFFFD")
	if len(line) > maxText && utf8.ValidString(text) {
		text += "…"
	}
	return text
}

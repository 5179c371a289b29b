package changeset

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// maxLine bounds a line: a path and a link target, with every byte escaped.
const maxLine = 2*6*maxPath + 1024

// ReadTree reads a guest's answer to a TreeRequest, and returns the entries, sorted by path. The
// sandbox may send any data, so everything that is not a well-formed tree is an error, and so is a
// truncated stream.
func ReadTree(r io.Reader, b Bounds) ([]Entry, error) {
	b = b.OrDefault()
	t := treeReader{seen: map[string]struct{}{}, limit: b.Files}
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		text, err := lines.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				return nil, malformed("a line is too long")
			}
			return nil, fault.Wrap(err, fault.Unavailable, "tree_cut", "the sandbox's file list is truncated")
		}
		done, err := t.take(text)
		if err != nil {
			return nil, err
		}
		if done {
			break
		}
	}
	if _, err := lines.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, malformed("data follows the end")
	}
	slices.SortFunc(t.all, func(x, y Entry) int { return strings.Compare(x.Path, y.Path) })
	return t.all, nil
}

// malformed returns the error for an invalid file list.
func malformed(why string) error {
	return fault.New(fault.Unavailable, "tree_malformed", "the sandbox's file list is malformed: "+why)
}

// treeReader collects the entries of a tree.
type treeReader struct {
	all   []Entry
	seen  map[string]struct{}
	limit int
	names int
}

// take parses a line and adds its entry. end is set for the last line.
func (t *treeReader) take(text []byte) (end bool, err error) {
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil || d.More() {
		return false, malformed("a line is not an entry")
	}
	if l.End {
		if l.Count != len(t.all) || l.Path != "" || l.Raw != nil || l.Type != "" {
			return false, malformed("the number of entries is wrong")
		}
		return true, nil
	}
	e, err := l.entry()
	if err != nil {
		return false, err
	}
	// If a path appeared twice, a check could use one entry and the copy could use the other.
	if _, duplicate := t.seen[e.Path]; duplicate {
		return false, malformed("a path appears twice")
	}
	t.seen[e.Path] = struct{}{}
	if t.names += len(e.Path) + len(e.Target); len(t.all) == t.limit || t.names > maxNames {
		return false, fault.Newf(fault.Exhausted, "tree_too_large", "the sandbox has more than %d files there, or their names are longer than %d MiB together", t.limit, maxNames>>20).
			WithHint("compare a smaller directory")
	}
	t.all = append(t.all, e)
	return false, nil
}

// entry returns the entry of a line if it is valid.
func (l line) entry() (Entry, error) {
	if l.Path != "" && l.Raw != nil || l.Target != "" && l.RawTarget != nil || l.Count != 0 {
		return Entry{}, malformed("a line has an entry and the end")
	}
	e := Entry{
		Path: l.Path + string(l.Raw), Type: l.Type, Mode: l.Mode, Size: l.Size, MTime: time.Unix(0, l.MTime), CTime: time.Unix(0, l.CTime),
		Sum: l.Sum, Target: l.Target + string(l.RawTarget), Opaque: l.Opaque,
	}
	if err := checkPath(e.Path); err != nil {
		return Entry{}, malformed(err.Error())
	}
	switch {
	case !slices.Contains([]Type{Regular, Dir, Link, Other}, e.Type):
		return Entry{}, malformed("an unknown type of file")
	case e.Mode&^0o7777 != 0, e.Size < 0:
		return Entry{}, malformed("an impossible mode or size")
	case (e.Type == Link) != (e.Target != ""), len(e.Target) > maxPath, strings.ContainsRune(e.Target, 0):
		return Entry{}, malformed("an invalid link target")
	case e.Sum != "" && (e.Type != Regular || !validSum(e.Sum)):
		return Entry{}, malformed("an invalid checksum")
	}
	return e, nil
}

// validSum reports whether a text is a SHA-256 checksum in lowercase.
func validSum(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == 32 && strings.ToLower(s) == s
}

// checkPath accepts only paths that stay below a directory: not absolute, and without "..", empty
// parts and NUL bytes.
func checkPath(name string) error {
	switch {
	case name == "" || name == "." || name == ".." || len(name) > maxPath:
		return errors.New("a path is empty or too long")
	case strings.ContainsRune(name, 0), strings.HasPrefix(name, "/"), strings.HasPrefix(name, "../"), path.Clean(name) != name:
		return fmt.Errorf("the path %.80q is not clean", name)
	case strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("a path is more than %d directories deep", maxDepth)
	}
	return nil
}

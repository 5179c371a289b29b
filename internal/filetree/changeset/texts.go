package changeset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
)

// countFactor, multiplied by the limit for shown texts, is the limit for texts whose lines are
// counted.
const countFactor = 16

// texts counts lines, and adds the diff if it was requested.
func (c *comparison) texts(all []*found) error {
	if !c.o.Lines && !c.o.Text {
		return nil
	}
	remaining := c.o.Bounds.AllText
	var paths []string
	var requested []*found
	for _, f := range all {
		now := f.change.New
		if now != nil && now.Type == Regular && now.Sum != "" && now.Size <= countFactor*c.o.Bounds.TextBytes {
			paths, requested = append(paths, f.change.Path), append(requested, f)
			continue
		}
		if now != nil && now.Type == Regular {
			f.change.Omitted = true
			continue
		}
		if err := c.text(f, nil, &remaining); err != nil {
			return err
		}
	}
	if len(paths) == 0 {
		return nil
	}
	r, err := c.source.Pack(c.ctx, PackRequest{Dir: c.o.Dir, Paths: asBytes(paths), FileBytes: countFactor * c.o.Bounds.TextBytes})
	if err != nil {
		return err
	}
	defer r.Close()
	for _, f := range requested {
		f.change.Omitted = true // unless its content arrives
	}
	return readPack(r, paths, c.o.Bounds, func(i int, size int64, r io.Reader) error {
		text, err := readAll(r, size, countFactor*c.o.Bounds.TextBytes)
		if err != nil {
			return packFault(err)
		}
		// The text must match the checksum, because a program may have changed the file in between.
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != requested[i].change.New.Sum {
			return nil
		}
		requested[i].change.Omitted = false
		return c.text(requested[i], text, &remaining)
	})
}

// readAll reads a file of at most the given number of bytes.
func readAll(r io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("a file of %d bytes is larger than requested", size)
	}
	var b bytes.Buffer // it grows with the bytes that actually arrive
	n, err := io.Copy(&b, io.LimitReader(r, size))
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return b.Bytes(), err
}

// text compares one path; now is the content if it is a regular file.
func (c *comparison) text(f *found, now []byte, remaining *int64) error {
	x, known, err := c.before(f.trio)
	if err != nil {
		return err
	}
	y := side{kind: gitMode(f.change.New), text: now}
	if f.change.New != nil && f.change.New.Type == Link {
		y.text = []byte(f.change.New.Target)
	}
	if isName(fold(path.Base(f.change.Path)), "package.json") {
		f.scripts = !sameScripts(x.text, y.text)
	}
	f.masked, f.wasMasked = c.mask(&y), c.mask(&x)
	f.equal = known && x.kind == y.kind && bytes.Equal(x.text, y.text)
	switch {
	case !known:
		f.change.Omitted = true
		return nil
	case x.kind == "" && y.kind == "":
		return nil // a directory
	case binary(x.text) || binary(y.text):
		f.change.Binary = true
		return nil
	case int64(max(len(x.text), len(y.text))) > c.o.Bounds.TextBytes:
		f.change.Added, f.change.Removed = countUnordered(x.text, y.text)
		f.change.Omitted = true
		return nil
	}
	text, added, removed := unified(c.hide.name(f.change.Path), x, y)
	f.change.Added, f.change.Removed = added, removed
	if !c.o.Text {
		return nil
	}
	if *remaining -= int64(len(text)); *remaining < 0 {
		f.change.Omitted = true
		return nil
	}
	f.change.Text = text
	return nil
}

// mask redacts the secrets of one side, and reports whether it had any.
func (c *comparison) mask(s *side) bool {
	shown := c.hide.bytes(s.text)
	hidden := !bytes.Equal(shown, s.text)
	s.text = shown
	return hidden
}

// before returns the old content of a path. It is unknown if the file is too large, or if it was
// changed outside so that only the new content exists.
func (c *comparison) before(t *trio) (side, bool, error) {
	old := t.start
	if old == nil || old.Type == Dir || old.Type == Other {
		return side{}, true, nil
	}
	s := side{kind: gitMode(old)}
	if old.Type == Link {
		s.text = []byte(old.Target)
		return s, true, nil
	}
	limit := countFactor * c.o.Bounds.TextBytes
	if old.Size > limit {
		return s, false, nil
	}
	r, err := c.openOriginal(t)
	if errors.Is(err, errUnknown) && t.host != nil && t.host.Type == Regular && t.host.Size <= limit && c.dir != nil {
		// Otherwise, the file that the change would replace is used.
		r, err = hostFiles{c.dir}.open(t.host)
	}
	if errors.Is(err, errUnknown) || errors.Is(err, errMoved) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("read %s: %w", old.Path, err)
	}
	defer r.Close()
	if s.text, err = io.ReadAll(io.LimitReader(contextReader{c.ctx, r}, limit)); err != nil {
		return s, false, fmt.Errorf("read %s: %w", old.Path, err)
	}
	return s, true, nil
}

// gitMode returns the mode that git writes for a file, or "" if git cannot store it.
func gitMode(e *Entry) string {
	switch {
	case e == nil || e.Type == Dir || e.Type == Other:
		return ""
	case e.Type == Link:
		return "120000"
	case e.Mode&0o111 != 0:
		return "100755"
	}
	return "100644"
}

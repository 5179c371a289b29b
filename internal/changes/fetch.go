package changes

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
)

// Fetch brings the content of changes out of a box for a look at it, into a directory
// of ours in which each is called by its number. It masks nothing: nothing of it is to
// be handed on. It returns those that came and are what was listed, by their paths.
func Fetch(ctx context.Context, box Box, dir string, list []Change, into *os.Root, b Bounds) (map[string]string, error) {
	var paths []string
	var changes []*Change
	for i := range list {
		if c := &list[i]; hasContent(c) && checkPath(c.Path) == nil {
			paths, changes = append(paths, c.Path), append(changes, c)
		}
	}
	came := map[string]string{}
	if len(paths) == 0 {
		return came, nil
	}
	r, err := box.Pack(ctx, PackRequest{Dir: dir, Paths: asBytes(paths), FileBytes: b.OrDefault().FileBytes})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	err = readPack(patient{ctx, r}, paths, b, func(i int, size int64, r io.Reader) error {
		if size != changes[i].New.Size {
			return nil
		}
		name := strconv.Itoa(i)
		if _, err := extractFile(into, name, size, r, nil, changes[i]); err != nil {
			if fault.CodeOf(err) == "changes_moved" {
				return nil
			}
			return err
		}
		came[paths[i]] = name
		return nil
	})
	return came, err
}

// Replace makes what a box says of some files what they are to be outside. What it
// returns is the box with those contents, by their paths.
func Replace(box Box, dir string, contents map[string][]byte) Box {
	return replaced{box, dir, contents}
}

type replaced struct {
	Box
	dir      string
	contents map[string][]byte
}

// Pack implements Box.
func (b replaced) Pack(ctx context.Context, req PackRequest) (io.ReadCloser, error) {
	if req.Dir != b.dir {
		return b.Box.Pack(ctx, req)
	}
	rest := req
	rest.Paths = nil
	for _, p := range req.Paths {
		if _, ours := b.contents[string(p)]; !ours {
			rest.Paths = append(rest.Paths, p)
		}
	}
	if len(rest.Paths) == len(req.Paths) {
		return b.Box.Pack(ctx, req)
	}
	theirs := io.NopCloser(io.Reader(nil))
	if len(rest.Paths) > 0 {
		var err error
		if theirs, err = b.Box.Pack(ctx, rest); err != nil {
			return nil, err
		}
	}
	r, w := io.Pipe()
	go func() {
		err := b.merge(w, theirs, req.Paths, len(rest.Paths) > 0)
		w.CloseWithError(errors.Join(err, theirs.Close()))
	}()
	return r, nil
}

// merge writes what the box packs and what takes the place of some of it, in the
// order in which it was asked for.
func (b replaced) merge(w io.Writer, theirs io.Reader, paths [][]byte, more bool) error {
	in, out := tar.NewReader(theirs), tar.NewWriter(w)
	var next *tar.Header
	count, from := 0, 0
	advance := func() (err error) {
		if next, err = in.Next(); err != nil {
			return packFault(err)
		}
		if next.Typeflag == tar.TypeXGlobalHeader {
			if next.PAXRecords[PackEnd] != strconv.Itoa(from) {
				return packMalformed("its end does not fit")
			}
			next, more = nil, false
			return nil
		}
		from++
		return nil
	}
	for _, p := range paths {
		name := string(p)
		if text, ours := b.contents[name]; ours {
			if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), Mode: 0o600, Format: tar.FormatPAX}); err != nil {
				return err
			}
			if _, err := out.Write(text); err != nil {
				return err
			}
			count++
			continue
		}
		if next == nil && more {
			if err := advance(); err != nil {
				return err
			}
		}
		if next == nil || next.Name != name {
			continue // it is left out
		}
		if next.Typeflag != tar.TypeReg {
			return packMalformed("it has something that is no plain file")
		}
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: next.Size, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return packFault(err)
		}
		next = nil
		count++
	}
	for next == nil && more {
		if err := advance(); err != nil {
			return err
		}
	}
	if next != nil {
		return packMalformed("it has a file that nobody asked for, or one twice")
	}
	end := tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{PackEnd: strconv.Itoa(count)}}
	if err := out.WriteHeader(&end); err != nil {
		return fmt.Errorf("end of a pack: %w", err)
	}
	return out.Close()
}

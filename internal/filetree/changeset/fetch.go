package changeset

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
)

// Fetch reads the content of changes from a sandbox for inspection, into a private directory in
// which each file is named by its number. It redacts nothing, so the content must not be passed on.
// It returns the file names by path, for the changes whose content is still the listed one.
func Fetch(ctx context.Context, source Source, dir string, list []Change, into *os.Root, b Bounds) (map[string]string, error) {
	var paths []string
	var changes []*Change
	for i := range list {
		if c := &list[i]; hasContent(c) && checkPath(c.Path) == nil {
			paths, changes = append(paths, c.Path), append(changes, c)
		}
	}
	fetched := map[string]string{}
	if len(paths) == 0 {
		return fetched, nil
	}
	r, err := source.Pack(ctx, PackRequest{Dir: dir, Paths: asBytes(paths), FileBytes: b.OrDefault().FileBytes})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	err = readPack(contextReader{ctx, r}, paths, b, func(i int, size int64, r io.Reader) error {
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
		fetched[paths[i]] = name
		return nil
	})
	return fetched, err
}

// Replace returns a source in which the content of some files is replaced. contents maps paths to
// the content to export.
func Replace(source Source, dir string, contents map[string][]byte) Source {
	return replaced{source, dir, contents}
}

// replaced is the source that Replace returns.
type replaced struct {
	Source
	dir      string
	contents map[string][]byte
}

// Pack implements Source.
func (b replaced) Pack(ctx context.Context, req PackRequest) (io.ReadCloser, error) {
	if req.Dir != b.dir {
		return b.Source.Pack(ctx, req)
	}
	request := req
	request.Paths = nil
	var indexes []int // indexes of the sandbox's paths in the request
	for i, p := range req.Paths {
		if _, ok := b.contents[string(p)]; !ok {
			request.Paths, indexes = append(request.Paths, p), append(indexes, i)
		}
	}
	if len(indexes) == len(req.Paths) {
		return b.Source.Pack(ctx, req)
	}
	var pack io.ReadCloser
	if len(indexes) > 0 {
		var err error
		if pack, err = b.Source.Pack(ctx, request); err != nil {
			return nil, err
		}
	}
	r, w := io.Pipe()
	go func() {
		err := b.merge(w, pack, req, indexes)
		if pack != nil {
			err = errors.Join(err, pack.Close())
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// merge writes the files of the sandbox and the replacements, in the order of the request. pack is
// the sandbox's answer for the paths at indexes, or nil if there are none.
func (b replaced) merge(w io.Writer, pack io.Reader, req PackRequest, indexes []int) error {
	out := tar.NewWriter(w)
	count, next := 0, 0 // next is an index of the request
	file := func(size int64, r io.Reader) error {
		h := tar.Header{Typeflag: tar.TypeReg, Name: string(req.Paths[next]), Size: size, Mode: 0o600, Format: tar.FormatPAX}
		if err := out.WriteHeader(&h); err != nil {
			return err
		}
		next++
		count++
		_, err := io.Copy(out, r)
		return err
	}
	// replacements writes the replacements before an index of the request. It skips paths for which
	// the sandbox has sent no file.
	replacements := func(end int) error {
		for next < end {
			text, ok := b.contents[string(req.Paths[next])]
			if !ok {
				next++
				continue
			}
			if err := file(int64(len(text)), bytes.NewReader(text)); err != nil {
				return err
			}
		}
		return nil
	}
	if pack != nil {
		paths := make([]string, 0, len(indexes))
		for _, i := range indexes {
			paths = append(paths, string(req.Paths[i]))
		}
		// The reader of the merged pack limits the total size.
		bounds := Bounds{FileBytes: req.FileBytes, Bytes: math.MaxInt64}
		err := readPack(pack, paths, bounds, func(i int, size int64, r io.Reader) error {
			if err := replacements(indexes[i]); err != nil {
				return err
			}
			if err := file(size, r); err != nil {
				return packFault(err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := replacements(len(req.Paths)); err != nil {
		return err
	}
	last := tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{PackEnd: strconv.Itoa(count)}}
	if err := out.WriteHeader(&last); err != nil {
		return fmt.Errorf("end of a pack: %w", err)
	}
	return out.Close()
}

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
// It returns the file names of the changes whose content arrived and is the listed one, by path.
func Fetch(ctx context.Context, source Source, dir string, list []Change, into *os.Root, b Bounds) (map[string]string, error) {
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
		came[paths[i]] = name
		return nil
	})
	return came, err
}

// Replace returns a source in which the content of some files is replaced. contents maps paths to
// the content to export.
func Replace(source Source, dir string, contents map[string][]byte) Source {
	return replaced{source, dir, contents}
}

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
	rest := req
	rest.Paths = nil
	var places []int // indexes of the sandbox's paths in the request
	for i, p := range req.Paths {
		if _, ours := b.contents[string(p)]; !ours {
			rest.Paths, places = append(rest.Paths, p), append(places, i)
		}
	}
	if len(places) == len(req.Paths) {
		return b.Source.Pack(ctx, req)
	}
	var theirs io.ReadCloser
	if len(places) > 0 {
		var err error
		if theirs, err = b.Source.Pack(ctx, rest); err != nil {
			return nil, err
		}
	}
	r, w := io.Pipe()
	go func() {
		err := b.merge(w, theirs, req, places)
		if theirs != nil {
			err = errors.Join(err, theirs.Close())
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// merge writes the files of the sandbox and the replacements, in the order of the request. theirs
// is the sandbox's answer for the paths at places, or nil if there are none.
func (b replaced) merge(w io.Writer, theirs io.Reader, req PackRequest, places []int) error {
	out := tar.NewWriter(w)
	count, at := 0, 0
	file := func(size int64, r io.Reader) error {
		h := tar.Header{Typeflag: tar.TypeReg, Name: string(req.Paths[at]), Size: size, Mode: 0o600, Format: tar.FormatPAX}
		if err := out.WriteHeader(&h); err != nil {
			return err
		}
		at++
		count++
		_, err := io.Copy(out, r)
		return err
	}
	// ours writes our replacements up to an index of the request. It skips paths that the sandbox
	// has left out.
	ours := func(place int) error {
		for at < place {
			text, ok := b.contents[string(req.Paths[at])]
			if !ok {
				at++
				continue
			}
			if err := file(int64(len(text)), bytes.NewReader(text)); err != nil {
				return err
			}
		}
		return nil
	}
	if theirs != nil {
		paths := make([]string, 0, len(places))
		for _, i := range places {
			paths = append(paths, string(req.Paths[i]))
		}
		// The reader of the merged pack limits the total size.
		bounds := Bounds{FileBytes: req.FileBytes, Bytes: math.MaxInt64}
		err := readPack(theirs, paths, bounds, func(i int, size int64, r io.Reader) error {
			if err := ours(places[i]); err != nil {
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
	if err := ours(len(req.Paths)); err != nil {
		return err
	}
	end := tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{PackEnd: strconv.Itoa(count)}}
	if err := out.WriteHeader(&end); err != nil {
		return fmt.Errorf("end of a pack: %w", err)
	}
	return out.Close()
}

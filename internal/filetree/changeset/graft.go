package changeset

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Graft returns a source whose directory dir also shows the files of another source's directory:
// under/x in dir is x in partDir of part. Only Pack accepts these names, because the trees are
// listed separately.
func Graft(source Source, dir, under string, part Source, partDir string) Source {
	return grafted{Source: source, dir: dir, under: under + "/", part: part, partDir: partDir}
}

// grafted is the source that Graft returns.
type grafted struct {
	Source
	dir, under string
	part       Source
	partDir    string
}

// Pack implements Source.
func (b grafted) Pack(ctx context.Context, req PackRequest) (io.ReadCloser, error) {
	var runs []PackRequest // paths that follow each other and are from one source
	fromPart := false      // whether the last run is of files of part
	for _, p := range req.Paths {
		rest, under := strings.CutPrefix(string(p), b.under)
		if len(runs) == 0 || under != fromPart {
			run := PackRequest{Dir: b.dir, FileBytes: req.FileBytes}
			if under {
				run.Dir = b.partDir
			}
			runs, fromPart = append(runs, run), under
		}
		last := &runs[len(runs)-1]
		last.Paths = append(last.Paths, []byte(rest))
	}
	if req.Dir != b.dir || len(runs) == 0 || len(runs) == 1 && !fromPart {
		return b.Source.Pack(ctx, req)
	}
	r, w := io.Pipe()
	// Paths are sorted, so there are few runs.
	begin := func(run PackRequest) (io.ReadCloser, string, error) {
		source, under := b.Source, ""
		if run.Dir == b.partDir {
			source, under = b.part, b.under
		}
		in, err := source.Pack(ctx, run)
		return in, under, err
	}
	first, under, err := begin(runs[0])
	if err != nil {
		return nil, err
	}
	go func() {
		out, count := tar.NewWriter(w), 0
		err := repack(out, first, under, &count)
		for _, run := range runs[1:] {
			if err != nil {
				break
			}
			var in io.ReadCloser
			if in, under, err = begin(run); err == nil {
				err = repack(out, in, under, &count)
			}
		}
		if err == nil {
			end := tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{PackEnd: strconv.Itoa(count)}}
			err = errors.Join(out.WriteHeader(&end), out.Close())
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// repack copies the entries of one source's archive to out under other names, and closes the
// archive. The reader of the result checks the names.
func repack(out *tar.Writer, r io.ReadCloser, under string, count *int) error {
	defer r.Close()
	in := tar.NewReader(r)
	for n := 0; ; n++ {
		h, err := in.Next()
		if err != nil {
			return packFault(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			if h.PAXRecords[PackEnd] != strconv.Itoa(n) {
				return packMalformed("the number of files is wrong")
			}
			*count += n
			return nil
		}
		if h.Typeflag != tar.TypeReg {
			return packMalformed("it contains something that is not a regular file")
		}
		to := tar.Header{Typeflag: tar.TypeReg, Name: under + h.Name, Size: h.Size, Mode: 0o600, Format: tar.FormatPAX}
		if err := out.WriteHeader(&to); err != nil {
			return fmt.Errorf("pack: %w", err)
		}
		if _, err := io.Copy(out, in); err != nil {
			return packFault(err)
		}
	}
}

// Renamed returns a change with all its paths replaced.
func (c Change) Renamed(name func(string) string) Change {
	rename := func(e *Entry) *Entry {
		if e == nil {
			return nil
		}
		to := *e
		to.Path = name(e.Path)
		return &to
	}
	c.Path, c.Old, c.New, c.Outside = name(c.Path), rename(c.Old), rename(c.New), rename(c.Outside)
	return c
}

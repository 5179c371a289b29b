package tree

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// Pack writes the content of regular files as a tar, in the requested order. It skips a file that
// has become too large, was removed or is not regular. The host notices that. The last header marks
// the stream as complete.
func Pack(ctx context.Context, w io.Writer, req changeset.PackRequest) error {
	top, err := openTop(req.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	to := openPath{top: top}
	defer to.close()
	out := tar.NewWriter(w)
	count := 0
	for _, raw := range req.Paths {
		in, base, err := to.parent(string(raw))
		if err == nil {
			err = pack(ctx, out, in, base, string(raw), req.FileBytes)
		}
		switch {
		case err == nil:
			count++
		case !replaced(err) && !errors.Is(err, errSkipped):
			return fmt.Errorf("pack %s: %w", raw, err)
		}
	}
	end := &tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{changeset.PackEnd: strconv.Itoa(count)}}
	if err := out.WriteHeader(end); err != nil {
		return err
	}
	return out.Close()
}

var errSkipped = errors.New("skipped")

func pack(ctx context.Context, out *tar.Writer, in int, base, name string, limit int64) error {
	f, e, err := openRegular(in, base)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return errSkipped
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if e.Size > limit {
		return errSkipped
	}
	// The host ignores name and mode, because it has them from the list.
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: e.Size, Mode: 0o600, Format: tar.FormatPAX}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	n, err := io.Copy(out, &cancelableReader{ctx, io.LimitReader(f, e.Size)})
	if err != nil {
		return err
	}
	// If the file has been truncated, pad it to the announced size. The host then rejects it
	// because of its checksum.
	_, err = io.CopyN(out, zeros{}, e.Size-n)
	return err
}

type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

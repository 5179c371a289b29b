package changeset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Stage fetches the content of changes from a sandbox into a private directory, with secrets
// redacted. The content of changes[n] becomes the file "n". It returns the changes with the
// checksums of the written files.
func Stage(ctx context.Context, source Source, dir string, changes []Change, into *os.Root, b Bounds) ([]Change, error) {
	var paths []string
	for i := range changes {
		if hasContent(&changes[i]) {
			paths = append(paths, changes[i].Path)
		}
	}
	if len(paths) == 0 {
		return changes, nil
	}
	r, err := source.Pack(ctx, PackRequest{Dir: dir, Paths: asBytes(paths), FileBytes: b.OrDefault().FileBytes})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return Extract(contextReader{ctx, r}, into, changes, source.Redactor, b)
}

// hasContent reports whether a change needs the content of a file.
func hasContent(c *Change) bool { return c.New != nil && c.New.Type == Regular }

// Extract reads the content of changes from a guest's archive into private files that are named by
// number. No data of a sandbox becomes a name, a mode or a link. Every file must be complete and
// identical to the compared one, because the exported files must be the reviewed ones. Otherwise
// Extract returns an error. It redacts secrets, and returns the changes with the checksums of
// the written files.
func Extract(r io.Reader, into *os.Root, want []Change, hide RedactorOf, b Bounds) ([]Change, error) {
	staged := slices.Clone(want)
	var paths []string
	var numbers []int
	for i := range want {
		if !hasContent(&want[i]) {
			continue
		}
		if want[i].Refused() || checkPath(want[i].Path) != nil {
			return nil, refused(want[i])
		}
		paths, numbers = append(paths, want[i].Path), append(numbers, i)
	}
	count := 0
	err := readPack(r, paths, b, func(i int, size int64, r io.Reader) error {
		c := &want[numbers[i]]
		if size != c.New.Size {
			return moved(c.Path)
		}
		count++
		sum, err := extractFile(into, strconv.Itoa(numbers[i]), size, r, hide, c)
		if err == nil {
			staged[numbers[i]] = c.withSum(sum)
		}
		return err
	})
	if err == nil && count != len(paths) {
		err = fault.New(fault.Conflict, "changes_moved", "files of the sandbox were removed after they were listed").
			WithHint("review the changes again")
	}
	if err != nil {
		return nil, err
	}
	return staged, nil
}

// moved returns the error for a file that has changed since the comparison.
func moved(name string) error {
	return fault.Newf(fault.Conflict, "changes_moved", "%q was changed after it was listed", name).
		WithHint("review the changes again")
}

// refused returns the error for a change that is never exported.
func refused(c Change) error {
	return fault.Newf(fault.Denied, "changes_refused", "%q cannot be exported from a sandbox: %v", c.Path, c.Flags)
}

// extractFile writes a file and returns its checksum if the content is the listed one. Until then
// no other process can open the file.
func extractFile(into *os.Root, name string, size int64, r io.Reader, hide RedactorOf, c *Change) (sum string, err error) {
	f, err := into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", fmt.Errorf("stage %s: %w", c.Path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r = io.LimitReader(r, size)
	written := sha256.New()
	listed := written
	inside := sha256.New()
	if m := hide.current(); m != nil {
		r, listed = m.Reader(io.TeeReader(r, inside)), inside
	}
	n, err := copySparse(f, written, r)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", packFault(fmt.Errorf("stage %s: %w", c.Path, err))
	}
	if hex.EncodeToString(listed.Sum(nil)) != c.New.Sum {
		return "", moved(c.Path)
	}
	return hex.EncodeToString(written.Sum(nil)), nil
}

// copySparse writes blocks of zeros as holes. A sandbox can create a huge file of holes without
// using space, and this file must not fill the host's disk.
func copySparse(f *os.File, h hash.Hash, r io.Reader) (int64, error) {
	buffer := make([]byte, 256<<10)
	var at int64
	for {
		n, err := io.ReadFull(r, buffer)
		h.Write(buffer[:n])
		const block = 4 << 10
		for i := 0; i < n; i += block {
			piece := buffer[i:min(i+block, n)]
			if allZero(piece) {
				continue
			}
			if _, err := f.WriteAt(piece, at+int64(i)); err != nil {
				return at, err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return at, f.Truncate(at)
		case err != nil:
			return at, err
		}
	}
}

// allZero reports whether a block has only zero bytes.
func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

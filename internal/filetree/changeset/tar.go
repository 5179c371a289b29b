package changeset

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// WriteTar writes the files of changes as a tar archive, from the stage that Stage filled. It
// leaves out removals and refused changes.
func WriteTar(w io.Writer, staged *os.Root, changes []Change) error {
	out := tar.NewWriter(w)
	for i := range changes {
		c := &changes[i]
		if c.New == nil {
			continue
		}
		if c.Refused() {
			return refused(*c)
		}
		h := &tar.Header{Name: c.Path, Mode: int64(c.New.Mode & exportedModeBits), ModTime: c.New.MTime, Format: tar.FormatPAX}
		var err error
		switch c.New.Type {
		case Dir:
			h.Typeflag, h.Name = tar.TypeDir, c.Path+"/"
			err = out.WriteHeader(h)
		case Link:
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, c.New.Target, 0o777
			err = out.WriteHeader(h)
		case Regular:
			h.Typeflag, h.Size = tar.TypeReg, c.New.Size
			err = writeStaged(out, h, staged, i)
		default:
			return refused(*c)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", c.Path, err)
		}
	}
	return out.Close()
}

// writeStaged adds the staged file n to an archive.
func writeStaged(out *tar.Writer, h *tar.Header, staged *os.Root, n int) error {
	f, err := openStaged(staged, n)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(out, f)
	return err
}

// openStaged opens the staged file n.
func openStaged(staged *os.Root, n int) (*os.File, error) {
	return staged.OpenFile(strconv.Itoa(n), os.O_RDONLY|unix.O_NOFOLLOW, 0)
}

// WritePatch writes changes as a patch for git apply and patch -p1, from the stage that Stage
// filled. It returns the changes that a patch cannot contain, and lists them in the patch's header:
// directories, binary files, texts above the limit, and changes whose lines would contain a secret.
func WritePatch(ctx context.Context, w io.Writer, staged *os.Root, base Base, changes []Change, hide RedactorOf, b Bounds) (left []Change, err error) {
	c := &comparison{ctx: ctx, hide: hide, base: base, o: Options{Bounds: b.OrDefault(), Text: true}}
	if base.Outside != nil {
		if c.dir, err = base.Outside.Open("."); err != nil {
			return nil, err
		}
		defer c.dir.Close()
	}
	brought := map[string]bool{}
	for _, e := range base.Brought {
		brought[e.Path] = true
	}
	var texts []string
	all := c.o.Bounds.AllText
	for i := range changes {
		f := &found{change: changes[i], trio: &trio{start: changes[i].Old, host: changes[i].Outside, now: changes[i].New, brought: brought[changes[i].Path]}}
		if err := c.patch(f, staged, i, &all); err != nil {
			return nil, err
		}
		if f.equal && !f.wasMasked && f.change.Has(Masked) {
			continue // only redacted text differs
		}
		if f.change.Text == "" || f.wasMasked {
			left = append(left, changes[i])
			continue
		}
		texts = append(texts, f.change.Text)
	}
	for _, l := range left {
		if _, err := fmt.Fprintf(w, "# not in this patch: %s %s\n", l.Op, quote(l.Path)); err != nil {
			return nil, err
		}
	}
	for _, t := range texts {
		if _, err := io.WriteString(w, t); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// patch computes the diff of one change again.
func (c *comparison) patch(f *found, staged *os.Root, n int, left *int64) error {
	ch := &f.change
	ch.Text, ch.Omitted, ch.Binary = "", false, false
	if ch.Refused() {
		return refused(*ch)
	}
	var now []byte
	if hasContent(ch) {
		if ch.New.Size > c.o.Bounds.TextBytes {
			return nil
		}
		file, err := openStaged(staged, n)
		if err != nil {
			return err
		}
		defer file.Close()
		if now, err = readAll(file, ch.New.Size, c.o.Bounds.TextBytes); err != nil {
			return err
		}
	}
	return c.text(f, now, left)
}

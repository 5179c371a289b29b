package cli

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func (a volumeVerbs) copyCommand() *cobra.Command {
	return &cobra.Command{
		Use: "cp SOURCE DESTINATION", Short: "Copy files into and out of volumes", Args: cobra.ExactArgs(2),
		Long: "Copy a file or a directory between this host and a volume. A path in a volume is\n" +
			"VOLUME:/PATH. The copy is placed in the directory DESTINATION under the name of\n" +
			"SOURCE; SOURCE/. copies only the contents. Sandboxes may use the volume at the\nsame time.",
		Example: "  crannog volume cp ./data cache:/\n  crannog volume cp cache:/data/. ./out",
		RunE: func(cmd *cobra.Command, args []string) error {
			from, to := parseCopyEnd(args[0]), parseCopyEnd(args[1])
			if (from.ref == "") == (to.ref == "") {
				return usagef("exactly one of SOURCE and DESTINATION must be in a volume").hint("write VOLUME:/PATH for a path in a volume")
			}
			return a.withInterrupt(cmd.Context(), func(ctx context.Context, c *connection) error {
				err := copyVolume(ctx, c, from, to)
				if err != nil {
					return fail("copy "+inert(args[0]), err)
				}
				return nil
			})
		},
	}
}

// copyVolume copies between this host and a volume, as a tar.
func copyVolume(ctx context.Context, c *connection, from, to copyEnd) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	if to.ref != "" {
		go func() {
			err := writeTree(w, from.path)
			w.CloseWithError(err)
			done <- err
		}()
		err := c.WriteVolume(ctx, to.ref, to.path, r)
		_ = r.CloseWithError(err) // the reader is gone
		return errors.Join(<-done, err)
	}
	// The names of a whole volume have no directory in front.
	contents := strings.HasSuffix(from.path, "/.") && path.Clean("/"+from.path) != "/"
	go func() {
		err := c.ReadVolume(ctx, from.ref, from.path, w)
		w.CloseWithError(err)
		done <- err
	}()
	err := readTree(r, to.path, contents)
	_ = r.CloseWithError(err)
	return errors.Join(<-done, err)
}

// writeTree writes a file or a directory of this host as a tar. The name of a directory is omitted
// if the path ends in "/.".
func writeTree(to io.Writer, from string) error {
	w := tar.NewWriter(to)
	top := filepath.Clean(from)
	above := filepath.Dir(top)
	if strings.HasSuffix(from, "/.") || from == "." {
		above = top
	}
	err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(above, name)
		if err != nil || rel == "." {
			return err
		}
		return addFile(w, name, rel, info)
	})
	return errors.Join(err, w.Close())
}

// addFile adds one file. Sockets, devices and named pipes are left out.
func addFile(w *tar.Writer, name, rel string, info fs.FileInfo) error {
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		var err error
		if link, err = os.Readlink(name); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	head, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	head.Name = filepath.ToSlash(rel)
	if err := w.WriteHeader(head); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(w, f, info.Size())
	return err
}

// readTree stores the files of a tar in a directory of this host. No entry can leave the directory:
// a sandbox may have made the names and the links. With contents, the first element of each name is
// left out.
func readTree(from io.Reader, dir string, contents bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	r := tar.NewReader(from)
	for {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(head.Name)
		if contents {
			_, name, _ = strings.Cut(name, "/")
		}
		if name == "" || name == "." {
			continue
		}
		if err := storeEntry(root, name, head, r); err != nil {
			return err
		}
	}
}

// storeEntry stores one entry of a tar below root.
func storeEntry(root *os.Root, name string, head *tar.Header, from io.Reader) error {
	mode := fs.FileMode(head.Mode) & fs.ModePerm
	switch head.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, mode|0o700)
	case tar.TypeSymlink:
		// A link that leads out of the copy would change files elsewhere when it is written
		// through.
		if !filepath.IsLocal(filepath.Join(filepath.Dir(name), head.Linkname)) || filepath.IsAbs(head.Linkname) {
			return nil
		}
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return root.Symlink(head.Linkname, name)
	case tar.TypeReg:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, from)
		return errors.Join(err, f.Close())
	}
	return nil
}

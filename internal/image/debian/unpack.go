package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"pault.ag/go/debian/deb"

	"github.com/crannog/crannog/internal/fault"
)

// mergedDirs are links into /usr. dpkg follows them, and unpack places files of the old directories
// below /usr.
var mergedDirs = []string{"bin", "lib", "lib32", "lib64", "libx32", "sbin"}

// unpack writes the files of the essential packages as a tar.
func unpack(ctx context.Context, to, debs string, list []*pkg) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	t := &tree{w: tar.NewWriter(f), made: map[string]bool{}}
	err = t.base()
	for _, p := range list {
		if err == nil && p.essential {
			err = t.add(ctx, filepath.Join(debs, p.deb()))
		}
	}
	return errors.Join(err, t.w.Close(), f.Close())
}

// tree writes one tar with the files of several packages.
type tree struct {
	w    *tar.Writer
	made map[string]bool // written paths
}

// base writes the links into /usr, and the files without which dpkg does not start.
func (t *tree) base() error {
	for _, dir := range []string{"usr", "var", "var/lib", "var/lib/dpkg", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "etc"} {
		if err := t.write(tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}, nil); err != nil {
			return err
		}
	}
	for _, dir := range mergedDirs {
		err := errors.Join(t.write(tar.Header{Typeflag: tar.TypeDir, Name: "usr/" + dir, Mode: 0o755}, nil),
			t.write(tar.Header{Typeflag: tar.TypeSymlink, Name: dir, Linkname: "usr/" + dir, Mode: 0o777}, nil))
		if err != nil {
			return err
		}
	}
	for _, name := range []string{"var/lib/dpkg/status", "var/lib/dpkg/available"} {
		if err := t.write(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, nil); err != nil {
			return err
		}
	}
	return nil
}

// add writes the files of a package.
func (t *tree) add(ctx context.Context, name string) (err error) {
	d, done, err := deb.LoadFile(name)
	if err != nil {
		return fmt.Errorf("package %s: %w", filepath.Base(name), err)
	}
	defer func() { err = errors.Join(err, done()) }()
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h, err := d.Data.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = t.entry(*h, d.Data)
		}
		if err != nil {
			return fmt.Errorf("package %s: %w", filepath.Base(name), err)
		}
	}
}

// entry writes one file of a package.
func (t *tree) entry(h tar.Header, content io.Reader) error {
	name, ok := place(h.Name)
	if !ok {
		return fault.Newf(fault.Invalid, CodeIntegrity, "the package has the file %.200q, which is outside the root", h.Name)
	}
	if name == "." || t.made[name] {
		return nil
	}
	to := tar.Header{Typeflag: h.Typeflag, Name: name, Mode: h.Mode & 0o7777, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime, Size: h.Size, Linkname: h.Linkname}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	case tar.TypeLink:
		if to.Linkname, ok = place(h.Linkname); !ok {
			return fault.Newf(fault.Invalid, CodeIntegrity, "the package has the link %.200q, which leads outside the root", h.Name)
		}
	default:
		return fault.Newf(fault.Invalid, CodeIntegrity, "%.200q is not a file, directory or link", h.Name)
	}
	if into, ok := accounts[name]; ok && h.Typeflag == tar.TypeReg {
		data, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		initial := tar.Header{Typeflag: tar.TypeReg, Name: into, Mode: 0o644, Size: int64(len(data))}
		if err := t.write(initial, bytes.NewReader(data)); err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	return t.write(to, content)
}

// accounts are files that become the initial users and groups. The script of the package
// base-passwd copies them only if there are no users yet, but a sandbox always has some.
var accounts = map[string]string{"usr/share/base-passwd/passwd.master": "etc/passwd", "usr/share/base-passwd/group.master": "etc/group"}

// write writes one entry of the tar.
func (t *tree) write(h tar.Header, content io.Reader) error {
	t.made[h.Name] = true
	if h.Typeflag == tar.TypeDir {
		h.Name += "/"
	}
	if h.ModTime.IsZero() {
		h.ModTime = time.Unix(0, 0)
	}
	if err := t.w.WriteHeader(&h); err != nil || h.Size == 0 {
		return err
	}
	_, err := io.CopyN(t.w, content, h.Size)
	return err
}

// place returns the path of a package's file below the root, with the links into /usr followed.
func place(name string) (string, bool) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", false
		}
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return ".", true
	}
	for _, dir := range mergedDirs {
		if name == dir || strings.HasPrefix(name, dir+"/") {
			return "usr/" + name, true
		}
	}
	return name, true
}

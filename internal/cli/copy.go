package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/crannog/crannog"
)

// origin is what a copy reads: a file or directory below a root.
type origin struct {
	files fs.FS
	name  string // within files
	base  string // the name it gets in an existing directory
	info  fs.FileInfo
	close func()
}

// target is what a copy writes. Names are relative to its top.
type target interface {
	mkdir(name string, perm fs.FileMode) error
	write(name string, r io.Reader, perm fs.FileMode) error
	// at says where its top is: in which sandbox, or "" for the host.
	at() (id, path string)
	finish() error
	close()
}

func (a *app) sourceOf(ctx context.Context, c *connection, p place, user string) (*origin, error) {
	if p.ref != "" {
		files, _, err := a.boxFS(ctx, c, p.ref, user)
		if err != nil {
			return nil, err
		}
		name := inside(p.path)
		info, err := files.Stat(name)
		if err != nil {
			return nil, fail("read "+p.ref+":"+p.path, err)
		}
		return &origin{files: files, name: name, base: path.Base("/" + name), info: info, close: func() {}}, nil
	}
	full, err := filepath.Abs(p.path)
	if err != nil {
		return nil, fail("read "+p.path, err)
	}
	info, err := os.Stat(full)
	if err != nil {
		return nil, fail("read "+p.path, err)
	}
	dir, name := filepath.Dir(full), filepath.Base(full)
	if info.IsDir() {
		dir, name = full, "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fail("read "+p.path, err)
	}
	return &origin{files: root.FS(), name: name, base: filepath.Base(full), info: info, close: func() {
		// It was only read.
		_ = root.Close()
	}}, nil
}

// targetOf decides the top of the copy: below an existing directory, or the
// path itself.
func (a *app) targetOf(ctx context.Context, c *connection, p place, user string, src *origin) (target, error) {
	base := src.base
	if base == "/" || base == "." || base == ".." {
		base = ""
	}
	if p.ref == "" {
		return hostTarget(p.path, base)
	}
	files, id, err := a.boxFS(ctx, c, p.ref, user)
	if err != nil {
		return nil, err
	}
	top := inside(p.path)
	info, err := files.Stat(top)
	switch {
	case err == nil && info.IsDir():
		top = path.Join(top, base)
	case err == nil && src.info.IsDir():
		return nil, fail("write "+p.ref+":"+p.path, errors.New("a directory cannot replace a file"))
	case err == nil || errors.Is(err, fs.ErrNotExist):
	default:
		return nil, fail("write "+p.ref+":"+p.path, err)
	}
	return &boxTarget{id: id, files: files, top: top, modes: map[fs.FileMode][]string{}}, nil
}

// copier walks the source and writes what it finds.
type copier struct {
	app  *app
	from *origin
	to   target
	done copied
}

func (c *copier) all(ctx context.Context) error {
	if !c.from.info.IsDir() {
		if err := c.file(c.from.name, ".", c.from.info); err != nil {
			return err
		}
		return c.to.finish()
	}
	err := fs.WalkDir(c.from.files, c.from.name, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return c.entry(name, d)
	})
	if c.done.LeftOut > 0 {
		c.app.note("%d links and special files were left out", c.done.LeftOut)
	}
	return errors.Join(err, c.to.finish())
}

func (c *copier) entry(name string, d fs.DirEntry) error {
	rel := strings.TrimPrefix(strings.TrimPrefix(name, c.from.name), "/")
	if c.from.name == "." {
		rel = name
	}
	if rel == "" {
		rel = "."
	}
	// What comes from inside was named by whoever runs there.
	if !filepath.IsLocal(rel) {
		return fmt.Errorf("%q is not a name within the source", name)
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := false
	if e, ok := info.Sys().(*crannog.Entry); ok {
		link = e.Link != "" && rel != "."
	}
	switch {
	case link || !info.IsDir() && !info.Mode().IsRegular():
		c.done.LeftOut++
		if c.app.verbose {
			c.app.note("left out: %s", printable(name))
		}
		if link && info.IsDir() {
			// A link to a directory could lead back up, and the copy would
			// never end.
			return fs.SkipDir
		}
		return nil
	case info.IsDir():
		c.done.Directories++
		return c.to.mkdir(rel, info.Mode().Perm())
	}
	return c.file(name, rel, info)
}

func (c *copier) file(name, rel string, info fs.FileInfo) error {
	f, err := c.from.files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	content := &measured{Reader: f}
	if err := c.to.write(rel, content, info.Mode().Perm()); err != nil {
		return err
	}
	c.done.Files++
	c.done.Bytes += content.n
	return nil
}

// measured counts what is read. A file may be longer than it was when it was
// looked at.
type measured struct {
	io.Reader
	n int64
}

func (r *measured) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.n += int64(n)
	return n, err
}

// boxTarget writes into a sandbox, through its guest.
type boxTarget struct {
	id    string
	files *crannog.FS
	top   string
	modes map[fs.FileMode][]string
}

func (t *boxTarget) mkdir(name string, perm fs.FileMode) error {
	full := path.Join(t.top, name)
	t.remember(full, perm, 0o755)
	return t.files.MkdirAll(full)
}

func (t *boxTarget) write(name string, r io.Reader, perm fs.FileMode) error {
	full := path.Join(t.top, name)
	t.remember(full, perm, 0o644)
	return t.files.Upload(full, r, 0o644)
}

// remember collects what must be changed, so that a thousand programs need
// not one call each.
func (t *boxTarget) remember(name string, perm, usual fs.FileMode) {
	if perm != usual {
		t.modes[perm] = append(t.modes[perm], name)
	}
}

// atOnce is how many names one call gets: their paths must fit in argv.
const atOnce = 200

func (t *boxTarget) finish() error {
	for perm, names := range t.modes {
		for len(names) > 0 {
			n := min(len(names), atOnce)
			if err := t.files.Chmod(perm, names[:n]...); err != nil {
				return err
			}
			names = names[n:]
		}
	}
	return nil
}

func (t *boxTarget) at() (id, path string) { return t.id, "/" + strings.TrimPrefix(t.top, ".") }

func (t *boxTarget) close() {}

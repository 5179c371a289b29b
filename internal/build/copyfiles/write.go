package copyfiles

import (
	"archive/tar"
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/fault"
)

// Destination is the path to which files are copied.
type Destination struct {
	// Path is absolute. If it ends in "/", it is a directory, regardless of what exists there.
	Path string
	// Over returns the file that the stage has at a path, and the path with all links resolved. If
	// it is nil, the layer depends on no other layer (--link).
	Over func(name string) (at string, info fs.FileInfo, err error)
	// Owner of all files, if Owned is set.
	Owned    bool
	UID, GID int
	Mode     *Mode
}

// Mode changes the mode of a file.
type Mode func(was fs.FileMode, directory bool) int64

// ParseMode reads the value of --chmod: an octal number, or a form such as u=rwX,go+r.
func ParseMode(text string) (*Mode, error) {
	if n, err := strconv.ParseUint(text, 8, 12); err == nil {
		mode := Mode(func(fs.FileMode, bool) int64 { return int64(n) }) //nolint:gosec // twelve bits
		return &mode, nil
	}
	clauses, err := parseSymbolic(text)
	if err != nil {
		return nil, err
	}
	mode := Mode(func(was fs.FileMode, directory bool) int64 {
		bits := bitsOf(was)
		for _, c := range clauses {
			bits = c.apply(bits, directory)
		}
		return bits
	})
	return &mode, nil
}

// clause is a part of a symbolic mode, such as u+x.
type clause struct {
	who, perm int64
	op        byte
	execute   bool // X: execute permission for directories and executable files
}

// parseSymbolic parses a mode such as u=rwX,go+r.
func parseSymbolic(text string) (list []clause, err error) {
	bad := fault.Newf(fault.Invalid, "build_mode_invalid", "--chmod: %.50q is not a mode", text).WithHint("a mode is octal, such as 755, or u=rwX,go=rX")
	for part := range strings.SplitSeq(text, ",") {
		at := strings.IndexAny(part, "+-=")
		if at < 0 {
			return nil, bad
		}
		c := clause{op: part[at]}
		for _, w := range part[:at] {
			switch w {
			case 'u':
				c.who |= 0o4700
			case 'g':
				c.who |= 0o2070
			case 'o':
				c.who |= 0o1007
			case 'a':
				c.who |= 0o7777
			default:
				return nil, bad
			}
		}
		if at == 0 {
			c.who = 0o7777
		}
		for _, p := range part[at+1:] {
			switch p {
			case 'r':
				c.perm |= 0o444
			case 'w':
				c.perm |= 0o222
			case 'x':
				c.perm |= 0o111
			case 'X':
				c.execute = true
			case 's':
				c.perm |= 0o6000
			case 't':
				c.perm |= 0o1000
			default:
				return nil, bad
			}
		}
		list = append(list, c)
	}
	return list, nil
}

// apply returns the permission bits after the change.
func (c clause) apply(bits int64, directory bool) int64 {
	perm := c.perm
	if c.execute && (directory || bits&0o111 != 0) {
		perm |= 0o111
	}
	perm &= c.who
	switch c.op {
	case '+':
		return bits | perm
	case '-':
		return bits &^ perm
	}
	return bits&^(c.who&0o777) | perm
}

// bitsOf returns the permission bits of a mode, as in a tar.
func bitsOf(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			bits |= value
		}
	}
	return bits
}

// Write writes the files of a selection as a layer.
func (s *Selection) Write(w *layertar.Writer, d Destination) error {
	out := &writer{w: w, d: d, made: map[string]bool{"": true, ".": true}}
	target := strings.TrimPrefix(path.Clean("/"+d.Path), "/")
	directory := strings.HasSuffix(d.Path, "/") || s.Several || s.Whole
	if d.Over != nil {
		at, info, err := d.Over(target)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		target = at
		if err == nil && info.IsDir() {
			directory = true
			out.made[target] = true
		} else if err == nil && directory {
			return fault.Newf(fault.Invalid, "build_destination", "%s is a file where the copy needs a directory", d.Path)
		}
	}
	for _, i := range s.sorted() {
		to := path.Join(target, i.Name)
		if !directory {
			to = target
		}
		if err := out.item(to, i); err != nil {
			return err
		}
	}
	return nil
}

// writer writes files into a layer.
type writer struct {
	w    *layertar.Writer
	d    Destination
	made map[string]bool // directories that exist in the stage or the layer
	// first is the path of the first of several names of a file.
	first map[inode]string
}

// inode identifies a file of the host.
type inode struct{ device, number uint64 }

// inode returns the identity of a file with several names, and false for other files.
func (i Item) inode() (inode, bool) {
	if i.info == nil || !i.info.Mode().IsRegular() {
		return inode{}, false
	}
	stat, ok := i.info.Sys().(*syscall.Stat_t)
	if !ok || stat.Nlink < 2 {
		return inode{}, false
	}
	return inode{stat.Dev, stat.Ino}, true
}

// header sets the owner of an entry.
func (o *writer) header(h tar.Header, i Item) tar.Header {
	h.Uid, h.Gid = int(i.owner.UID), int(i.owner.GID)
	if o.d.Owned {
		h.Uid, h.Gid = o.d.UID, o.d.GID
	}
	return h
}

// above writes a directory and its parents, if the stage lacks them.
func (o *writer) above(dir string) error {
	if o.made[dir] {
		return nil
	}
	if err := o.above(path.Dir(dir)); err != nil {
		return err
	}
	o.made[dir] = true
	if o.d.Over != nil {
		if _, _, err := o.d.Over(dir); err == nil {
			return nil
		}
	}
	return o.w.Add(o.header(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: time.Unix(0, 0)}, Item{}), nil)
}

// item writes one file.
func (o *writer) item(to string, i Item) error {
	if err := o.above(path.Dir(to)); err != nil {
		return err
	}
	h := tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: 0o644, ModTime: time.Unix(0, 0), Size: int64(len(i.data))}
	was := fs.FileMode(0o644)
	if i.info != nil {
		was = i.info.Mode()
		h.Mode, h.ModTime, h.Size = bitsOf(was)|int64(i.owner.SetID), i.info.ModTime(), i.info.Size()
	}
	if o.d.Mode != nil && was&fs.ModeSymlink == 0 {
		h.Mode = (*o.d.Mode)(was, was.IsDir())
	}
	h = o.header(h, i)
	switch {
	case was.IsDir():
		if o.made[to] {
			return nil // the stage already has it
		}
		o.made[to] = true
		h.Typeflag, h.Name, h.Size = tar.TypeDir, to+"/", 0
		return o.w.Add(h, nil)
	case was&fs.ModeSymlink != 0:
		h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, i.link, 0, 0o777
		return o.w.Add(h, nil)
	}
	if id, linked := i.inode(); linked {
		if first, ok := o.first[id]; ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			return o.w.Add(h, nil)
		}
		if o.first == nil {
			o.first = map[inode]string{}
		}
		o.first[id] = to
	}
	f, err := i.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return o.w.Add(h, f)
}

package stagetree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/crannog/crannog/internal/image/layer"
)

// sandboxFiles are files that each sandbox gets for itself. As with other builders, a command's
// changes to them are discarded.
var sandboxFiles = []string{"etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", "etc/machine-id", "var/lib/dbus/machine-id"}

// sandboxDirs are directories that each sandbox has. Files in them belong to the image.
var sandboxDirs = []string{"run/lock", "workspace"}

// hidden are directories that are not part of an image.
var hidden = []string{".crannog", "dev", "proc", "sys"}

// change is one change of a sandbox.
type change struct {
	header tar.Header
	at     int64 // offset of its content
	// content replaces the archive's if it is not nil.
	content []byte
	name    string
	opaque  bool
}

// isWhiteout reports whether the change is a removal.
func (c change) isWhiteout() bool {
	return c.header.Typeflag == tar.TypeChar && c.header.Devmajor == 0 && c.header.Devminor == 0
}

// Changes are the changes that a command has made to a stage.
type Changes struct {
	f    *os.File
	list []change
}

// ReadChanges reads the changes of a sandbox from an engine's archive. The order of such an archive
// is undefined, so the entries are sorted, and the first of several hard links becomes the file.
func ReadChanges(f *os.File) (*Changes, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	c := &Changes{f: f}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		at, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		one := change{header: *h, at: at, name: clean(h.Name), opaque: h.PAXRecords["SCHILY.xattr.trusted.overlay.opaque"] == "y"}
		if h.Typeflag == tar.TypeLink {
			one.header.Linkname = clean(h.Linkname)
		}
		if one.name != "" {
			c.list = append(c.list, one)
		}
	}
	c.linkedWhiteouts()
	c.orderLinks()
	slices.SortFunc(c.list, func(a, b change) int { return strings.Compare(a.name, b.name) })
	return c, nil
}

// clean returns a path relative to the root.
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// linkedWhiteouts marks removals that an engine writes as links to the first one.
func (c *Changes) linkedWhiteouts() {
	removed := map[string]change{}
	for _, one := range c.list {
		if one.isWhiteout() {
			removed[one.name] = one
		}
	}
	for i, one := range c.list {
		if first, ok := removed[one.header.Linkname]; ok && one.header.Typeflag == tar.TypeLink {
			first.name = one.name
			c.list[i] = first
		}
	}
}

// orderLinks makes the first name of a file with several names the file itself.
func (c *Changes) orderLinks() {
	byName := map[string]int{}
	for i, one := range c.list {
		byName[one.name] = i
	}
	first := map[int]int{} // index of a file: index of the entry with its first name
	for i, one := range c.list {
		file, ok := byName[one.header.Linkname]
		if one.header.Typeflag != tar.TypeLink || !ok {
			continue
		}
		if best, seen := first[file]; !seen || one.name < c.list[best].name {
			first[file] = i
		}
	}
	for file, link := range first {
		if c.list[link].name < c.list[file].name {
			c.list[file].name, c.list[link].name = c.list[link].name, c.list[file].name
		}
	}
	for i, one := range c.list {
		if file, ok := byName[one.header.Linkname]; ok && one.header.Typeflag == tar.TypeLink {
			c.list[i].header.Linkname = c.list[file].name
		}
	}
}

// Below returns the changes below a directory, with paths relative to it.
func (c *Changes) Below(dir string) *Changes {
	out := &Changes{f: c.f}
	for _, one := range c.list {
		rest, ok := strings.CutPrefix(one.name, dir+"/")
		if !ok {
			continue
		}
		if target, inside := strings.CutPrefix(one.header.Linkname, dir+"/"); one.header.Typeflag == tar.TypeLink && inside {
			one.header.Linkname = target
		}
		one.name = rest
		out.list = append(out.list, one)
	}
	return out
}

// Write writes the changes as a layer over a tree. It leaves out paths below those in without, at
// which other files were mounted for the command.
func (c *Changes) Write(w sink, over *Tree, without []string) error {
	lower, err := over.Open()
	if err != nil {
		return err
	}
	defer lower.Close()
	trust, err := c.trust(lower)
	if err != nil {
		return err
	}
	for _, one := range c.list {
		if trust[one.name] || isBelow(one.name, hidden) || isBelow(one.name, without) || slices.Contains(sandboxFiles, one.name) || over.unneeded(lower, one) {
			continue
		}
		if info, err := lower.Lstat(one.name); one.opaque && (err != nil || !info.IsDir()) {
			one.opaque = false // there is nothing to hide
		}
		if err := c.write(w, one); err != nil {
			return err
		}
	}
	return nil
}

// isBelow reports whether a path is one of the list, or below one.
func isBelow(name string, list []string) bool {
	return slices.ContainsFunc(list, func(dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") })
}

// unneeded reports whether an entry does not change the stage: a directory that is listed only
// because of its content, or the removal of a path that no layer has.
func (t *Tree) unneeded(lower *os.Root, one change) bool {
	info, err := lower.Lstat(one.name)
	switch {
	case one.isWhiteout():
		return errors.Is(err, fs.ErrNotExist) || t.made[one.name]
	case one.header.Typeflag != tar.TypeDir || one.opaque && err == nil && !t.made[one.name]:
		return false
	case t.made[one.name]:
		return true
	case err != nil:
		return slices.Contains(sandboxDirs, one.name)
	case !info.IsDir():
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	// Without root, all files of a tree belong to this user; in the sandbox they belong to root.
	same := os.Geteuid() != 0 && one.header.Uid == 0 && one.header.Gid == 0 ||
		int64(one.header.Uid) == int64(stat.Uid) && int64(one.header.Gid) == int64(stat.Gid)
	return same && one.header.Mode&0o1777 == int64(stat.Mode&0o1777)
}

// write writes one change as an entry of a layer.
func (c *Changes) write(w sink, one change) error {
	h := one.header
	h.Name = one.name
	switch {
	case one.isWhiteout():
		return w.Add(tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Dir(one.name), ".wh."+path.Base(one.name)), ModTime: h.ModTime}, nil)
	case h.Typeflag == tar.TypeDir:
		h.Name += "/"
		if err := w.Add(h, nil); err != nil || !one.opaque {
			return err
		}
		return w.Add(tar.Header{Typeflag: tar.TypeReg, Name: one.name + "/.wh..wh..opq", ModTime: h.ModTime}, nil)
	case one.content != nil:
		h.Size = int64(len(one.content))
		return w.Add(h, bytes.NewReader(one.content))
	case h.Typeflag == tar.TypeReg:
		return w.Add(h, io.NewSectionReader(c.f, one.at, h.Size))
	}
	return w.Add(h, nil)
}

// ApplyTo applies the changes to a directory that later commands use, such as a cache mount.
func (c *Changes) ApplyTo(ctx context.Context, dir string, limits layer.Limits) error {
	r, w := io.Pipe()
	go func() {
		out := tarSink{tar.NewWriter(w)}
		var err error
		for _, one := range c.list {
			if err = c.write(out, one); err != nil {
				break
			}
		}
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(err)
	}()
	defer r.Close()
	t := &Tree{Dir: dir, limits: limits, owners: layer.Owners{}}
	return t.change(func(l *layer.Tree) error { return l.Apply(ctx, r) })
}

// sink receives the entries of a layer.
type sink interface {
	Add(h tar.Header, content io.Reader) error
}

// tarSink writes entries to a tar unchanged.
type tarSink struct{ *tar.Writer }

// Add implements sink.
func (p tarSink) Add(h tar.Header, content io.Reader) error {
	h.Format = tar.FormatPAX
	h.PAXRecords = nil
	if err := p.WriteHeader(&h); err != nil || content == nil {
		return err
	}
	_, err := io.Copy(p, content)
	return err
}

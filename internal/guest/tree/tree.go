// Package tree owns listing and packing the files of a sandbox for the host, which compares them
// with an earlier state and decides which changes to export.
package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/filetree/changeset"
)

// Limits of one listing. They protect the guest's memory; the host has its own limits.
const (
	maxFiles = 1_000_000
	maxPath  = 4096
	maxDepth = 200
)

// List writes the list of files below a directory. After an error the list is incomplete and has no
// last line.
func List(ctx context.Context, w io.Writer, req changeset.TreeRequest) error {
	top, err := openTop(req.Dir)
	if err != nil {
		return err
	}
	defer unix.Close(top)
	mounts, err := mountsBelow(req.Dir)
	if err != nil {
		return err
	}
	l := &list{ctx: ctx, req: req, mounts: mounts, out: changeset.NewEncoder(w)}
	if req.Paths == nil {
		err = l.dir(top, "", 0)
	} else {
		err = l.listPaths(top)
	}
	if err != nil {
		return err
	}
	return l.out.Close()
}

// openTop opens the directory of a request.
func openTop(dir string) (int, error) {
	if !path.IsAbs(dir) || path.Clean(dir) != dir {
		return -1, fmt.Errorf("the directory %q is not a clean absolute path", dir)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return fd, nil
}

type list struct {
	ctx    context.Context
	req    changeset.TreeRequest
	mounts map[string]bool // mount points below the directory
	out    *changeset.Encoder
	count  int
	buffer []byte
}

// dir lists one open directory.
func (l *list) dir(fd int, above string, depth int) error {
	names, err := readNames(fd)
	if err != nil {
		return fmt.Errorf("list %s: %w", above, err)
	}
	if err := context.Cause(l.ctx); err != nil {
		return err
	}
	for _, base := range names {
		if err := l.entry(fd, base, path.Join(above, base), depth); err != nil {
			return err
		}
	}
	return nil
}

func (l *list) entry(in int, base, name string, depth int) error {
	if l.count++; l.count > maxFiles || len(name) > maxPath {
		return errors.New("too many files, or too long a path")
	}
	for range attempts {
		err := l.write(in, base, name, depth)
		if !replaced(err) {
			return err
		}
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
	}
	// Programs keep replacing the file. Do not list it as absent.
	return l.out.Put(changeset.Entry{Path: name, Type: changeset.Other, Opaque: true})
}

// attempts is how often a file is read again because it was replaced.
const attempts = 5

// write writes one file and everything below it. If nothing has been written yet, the error may
// mean that the file was replaced.
func (l *list) write(in int, base, name string, depth int) error {
	e, err := l.describe(in, base, name)
	if err != nil {
		return fmt.Errorf("look at %s: %w", name, err)
	}
	if e.Type != changeset.Dir || e.Opaque {
		if e.CTime.Before(l.req.Newer) {
			return nil
		}
		return l.out.Put(e)
	}
	sub, err := openDirectory(in, base)
	if replaced(err) {
		return err
	}
	if err == nil {
		defer unix.Close(sub)
	}
	if err != nil || depth == maxDepth {
		// Do not list an unreadable directory as empty, because the host would take its files as
		// removed.
		e.Opaque = true
		return l.out.Put(e)
	}
	if err := l.out.Put(e); err != nil {
		return err
	}
	if err := l.dir(sub, name, depth+1); err != nil {
		return fmt.Errorf("%s: %v", name, err) // %v, because the error is not about this file
	}
	return nil
}

// describe returns the description of a file, with the target of a link, and with a checksum if
// requested.
func (l *list) describe(in int, base, name string) (changeset.Entry, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(in, base, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return changeset.Entry{}, err
	}
	e := changeset.FromStat(&stat)
	e.Path = name
	if l.mounts[name] || isKernelPath(path.Join(l.req.Dir, name)) {
		e.Opaque = true
		if e.Type == changeset.Link { // a mount covers the link
			e.Type = changeset.Other
		}
		return e, nil
	}
	switch {
	case e.Type == changeset.Link:
		if l.buffer == nil {
			l.buffer = make([]byte, maxPath+1)
		}
		n, err := unix.Readlinkat(in, base, l.buffer)
		if errors.Is(err, unix.EINVAL) {
			return e, unix.ENOENT // the link was replaced by another file
		}
		if err != nil {
			return e, err
		}
		if n == 0 || n > maxPath {
			e.Type = changeset.Other
			break
		}
		e.Target = string(l.buffer[:n])
	case e.Type == changeset.Regular && l.req.Sums && e.Size <= l.req.SumBytes:
		return sum(l.ctx, in, base, e)
	}
	return e, nil
}

// isKernelPath reports whether a path belongs to a file system of the kernel, such as /proc.
func isKernelPath(name string) bool {
	return name == "/proc" || name == "/sys" || name == "/dev"
}

// sum reads a file and returns its description with a checksum. Both are of the same version of the
// file.
func sum(ctx context.Context, in int, base string, e changeset.Entry) (changeset.Entry, error) {
	f, now, err := openRegular(in, base)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		e.Opaque = true
		return e, nil
	}
	if err != nil {
		return e, err
	}
	defer f.Close()
	now.Path = e.Path
	h := sha256.New()
	n, err := io.Copy(h, &cancelableReader{ctx, io.LimitReader(f, now.Size)})
	if err != nil {
		return e, err
	}
	now.Size = n
	now.Sum = hex.EncodeToString(h.Sum(nil))
	return now, nil
}

// cancelableReader ends a long read when the caller has disconnected.
type cancelableReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (p *cancelableReader) Read(b []byte) (int, error) {
	if err := context.Cause(p.ctx); err != nil {
		return 0, err
	}
	return p.r.Read(b)
}

// listPaths lists the requested paths, without their parent directories.
func (l *list) listPaths(top int) error {
	w := openPath{top: top}
	defer w.close()
	for _, raw := range l.req.Paths {
		name := string(raw)
		if l.count++; l.count > maxFiles {
			return errors.New("too many paths")
		}
		in, base, err := w.parent(name)
		if err == nil {
			var e changeset.Entry
			if e, err = l.describe(in, base, name); err == nil {
				err = l.out.Put(e)
			}
		}
		if err != nil && !replaced(err) {
			return fmt.Errorf("look at %s: %w", name, err)
		}
	}
	return nil
}

// replaced reports whether an error means that a program removed or replaced the file.
func replaced(err error) bool {
	return err != nil && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, errNotRegular))
}

// mountsBelow returns the mount points below a directory, such as masks of hidden files.
func mountsBelow(dir string) (map[string]bool, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	below := map[string]bool{}
	for text := range strings.Lines(string(data)) {
		fields := strings.Fields(text)
		if len(fields) < 5 {
			return nil, fmt.Errorf("a malformed mount: %.80q", text)
		}
		if rel, ok := strings.CutPrefix(unescape(fields[4]), strings.TrimSuffix(dir, "/")+"/"); ok && rel != "" {
			below[rel] = true
		}
	}
	return below, nil
}

// unescape decodes the octal escapes of spaces, tabs, newlines and backslashes in the kernel's list
// of mounts.
func unescape(name string) string {
	if !strings.ContainsRune(name, '\\') {
		return name
	}
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(name)
}

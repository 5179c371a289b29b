package watch

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"unsafe"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/fspath"
	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"

	"github.com/crannog/crannog/internal/audit/events"
)

// Kinds of files, as they appear in events.
const (
	kindFile  = "file"
	kindDir   = "dir"
	kindLink  = "link"
	kindOther = "other"
)

// Reasons why there is no checksum.
const (
	unhashedGone       = "gone"
	unhashedChanging   = "changing"
	unhashedTooLarge   = "too_large"
	unhashedUnreadable = "unreadable"
)

// Limits of the reading of one file.
const (
	maxHashed     = 256 << 20 // larger files have no checksum
	maxBufferSize = 1 << 20   // at most this much of a file is in memory at once
)

// state describes the file at a path. Without a kind, there is no file.
type state struct {
	kind     string
	mode     uint16
	size     int64
	sum      [sha256.Size]byte
	unhashed string
	links    uint32
	file     inode
}

// same reports whether two states have the same attributes and content.
func (s state) same(o state) bool {
	return s.kind == o.kind && s.mode == o.mode && s.size == o.size && s.sum == o.sum && s.unhashed == "" && o.unhashed == ""
}

// describe writes a state into an event.
func (s state) describe(e *events.Event) {
	e.Type, e.Mode, e.Unhashed = s.kind, uint32(s.mode), s.unhashed
	if s.kind != kindFile && s.kind != kindLink {
		return
	}
	e.Size = s.size
	if s.unhashed == "" {
		e.Sum = hex.EncodeToString(s.sum[:])
	}
}

// fileView is the view of the sandbox's files that one survey has: with the rights of the kernel,
// from the first process's root.
type fileView struct {
	ctx    context.Context
	k      *sentry.Kernel
	creds  *auth.Credentials
	places *places
	buf    []byte
}

// statMask lists the attributes that a state needs.
const statMask = linux.STATX_TYPE | linux.STATX_MODE | linux.STATX_SIZE | linux.STATX_INO | linux.STATX_NLINK | linux.STATX_CTIME

// at returns the state of the file at a path of the sandbox.
func (l *fileView) at(path string) state { return l.from(l.places.root, path) }

// operation looks up a path without following links, because a link that has replaced a directory
// leads to another file.
func operation(top vfs.VirtualDentry, path string) *vfs.PathOperation {
	return &vfs.PathOperation{Root: top, Start: top, Path: fspath.Parse(path), ResolveFlags: linux.RESOLVE_NO_SYMLINKS}
}

// from returns the state of the file at a path below top.
func (l *fileView) from(top vfs.VirtualDentry, path string) state {
	stat, err := l.k.VFS().StatAt(l.ctx, l.creds, operation(top, path), &vfs.StatOptions{Mask: statMask})
	if err != nil {
		return state{}
	}
	s := state{mode: stat.Mode &^ linux.S_IFMT, links: stat.Nlink, file: inodeIn(stat)}
	switch stat.Mode & linux.S_IFMT {
	case linux.S_IFREG:
		s.kind, s.size = kindFile, int64(stat.Size)
		s.unhashed = l.hash(top, path, &s)
	case linux.S_IFDIR:
		s.kind = kindDir
	case linux.S_IFLNK:
		s.kind = kindLink
		target, err := l.k.VFS().ReadlinkAt(l.ctx, l.creds, operation(top, path))
		if err != nil {
			s.unhashed = unhashedGone
		}
		s.size, s.sum = int64(len(target)), sha256.Sum256([]byte(target))
	default:
		s.kind = kindOther
	}
	return s
}

// hash reads a file in pieces, and returns the reason if it could not.
func (l *fileView) hash(top vfs.VirtualDentry, path string, s *state) (reason string) {
	if s.size > maxHashed {
		return unhashedTooLarge
	}
	// A program may have replaced the file, for example by a pipe, which must not block this call.
	f, err := l.k.VFS().OpenAt(l.ctx, l.creds, operation(top, path), &vfs.OpenOptions{
		Flags: linux.O_RDONLY | linux.O_NOFOLLOW | linux.O_NONBLOCK | linux.O_NOATIME,
	})
	switch {
	case linuxerr.Equals(linuxerr.ENOENT, err):
		return unhashedGone
	case err != nil:
		return unhashedUnreadable
	}
	defer f.DecRef(l.ctx)
	before, err := f.Stat(l.ctx, vfs.StatOptions{Mask: statMask})
	if err != nil || before.Mode&linux.S_IFMT != linux.S_IFREG {
		return unhashedChanging
	}
	if need := min(int(s.size)+1, maxBufferSize); len(l.buf) < need {
		l.buf = make([]byte, need)
	}
	sum, size := sha256.New(), int64(0)
	for {
		n, err := f.Read(l.ctx, usermem.BytesIOSequence(l.buf), vfs.ReadOptions{})
		sum.Write(l.buf[:n])
		if size += n; size > maxHashed {
			return unhashedTooLarge
		}
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			break
		}
		if err != nil {
			return unhashedUnreadable
		}
	}
	after, err := f.Stat(l.ctx, vfs.StatOptions{Mask: statMask})
	if err != nil || before.Ctime != after.Ctime || int64(after.Size) != size {
		return unhashedChanging
	}
	s.size, s.mode, s.links, s.file = size, after.Mode&^linux.S_IFMT, after.Nlink, inodeIn(after)
	sum.Sum(s.sum[:0])
	return ""
}

// below returns the original file at a path, from which the sandbox started. gVisor does not export
// the layer that contains it. If it cannot be found, a file that was opened for writing but not
// written is reported as changed.
func (l *fileView) below(path string) (state, bool) {
	impl := reflect.ValueOf(l.places.root.Mount().Filesystem().Impl())
	if impl.Kind() != reflect.Pointer || impl.Elem().Kind() != reflect.Struct {
		return state{}, false
	}
	options := impl.Elem().FieldByName("opts")
	if !options.IsValid() || options.Kind() != reflect.Struct {
		return state{}, false
	}
	lower := options.FieldByName("LowerRoots")
	if !lower.IsValid() || lower.Type() != reflect.TypeFor[[]vfs.VirtualDentry]() || lower.Len() != 1 {
		return state{}, false
	}
	roots := *(*[]vfs.VirtualDentry)(unsafe.Pointer(lower.UnsafeAddr()))
	s := l.from(roots[0], path)
	return s, s.kind != ""
}

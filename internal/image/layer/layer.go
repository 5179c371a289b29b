// Package layer owns unpacking image layers into a directory. A layer is not trusted: no entry
// reaches outside the directory, and none fills the disk.
package layer

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// CodeRefused is the code of the error for a layer that no image builder creates.
const CodeRefused = "image_layer_refused"

// CodeTooLarge is the code of the error for an image that exceeds the limits.
const CodeTooLarge = "image_too_large"

// Reserved is the directory at the top of the tree in which layers cannot create files: the guest's
// program is mounted there.
const Reserved = ".crannog"

// Limits bound all layers of an image together. They prevent small archives from unpacking to large
// trees.
type Limits struct {
	Entries int64
	Bytes   int64 // of unpacked content
}

// DefaultLimits apply if an operator sets none.
var DefaultLimits = Limits{Entries: 2_000_000, Bytes: 64 << 30}

// maxPathLength is Linux's PATH_MAX. maxDepth bounds the depth of nested directories.
const (
	maxPathLength = 4096
	maxDepth      = 256
)

// Counts are the totals of unpacking.
type Counts struct {
	Entries, Bytes int64
	// Skipped counts devices, pipes and entries below Reserved, which are left out.
	Skipped int64
}

// Tree is a directory into which layers are unpacked, lowest first. Only one goroutine may use it.
type Tree struct {
	dir    string
	root   *os.File
	limits Limits
	counts Counts
	// owners is set if files get the owners that the layers name.
	owners bool
	// special has the owners and set-id bits of all files except plain files of root.
	special Owners
	dirs    map[string]dirState // by path below the root
	made    map[string]bool     // paths that come from the layer being unpacked
	parent  *openDirectory      // directory of the last entry
}

// dirState is set on a directory after its content is complete.
type dirState struct {
	mode     uint32
	modified time.Time
}

// openDirectory is an open directory of the tree.
type openDirectory struct {
	name string // path in the entry
	path string // path below the root, with links resolved
	file *os.File
}

// Owners are the owners and set-id bits of files, by path below the root. A file that is absent
// belongs to root and has no set-id bits.
type Owners map[string]fileowners.Owner

// Open starts to unpack into dir, which must be empty and used by this process only.
func Open(dir string, limits Limits) (*Tree, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return &Tree{dir: dir, root: root, limits: limits, owners: os.Geteuid() == 0, special: Owners{}, dirs: map[string]dirState{}}, nil
}

// Continue makes the tree add to the owners of layers that were unpacked into the directory before.
func (t *Tree) Continue(before Owners) { t.special = before }

// Close closes the directory.
func (t *Tree) Close() error {
	t.forgetParent()
	return t.root.Close()
}

// forgetParent closes the directory of the last entry.
func (t *Tree) forgetParent() {
	if t.parent != nil {
		t.parent.file.Close()
		t.parent = nil
	}
}

// Counts returns what has been unpacked.
func (t *Tree) Counts() Counts { return t.counts }

// Apply unpacks one layer, an uncompressed tar.
func (t *Tree) Apply(ctx context.Context, r io.Reader) error {
	t.made = map[string]bool{}
	defer t.forgetParent()
	// The rest of the tar is limited too: a header takes 512 bytes, and a long name or the padding
	// at the end a few thousand.
	bounded := &boundedReader{r: r, left: t.limits.Bytes + 64<<20 + 4096*min(t.limits.Entries, math.MaxInt64/8192)}
	entries := tar.NewReader(bounded)
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return readError(err)
		}
		if t.counts.Entries++; t.counts.Entries > t.limits.Entries {
			return fault.Newf(fault.Exhausted, CodeTooLarge, "the image has more than %d files", t.limits.Entries)
		}
		if err := t.entry(h, entries); err != nil {
			return explain(h.Name, err)
		}
	}
	// The digest of a layer includes its padding.
	if _, err := io.Copy(io.Discard, bounded); err != nil {
		return readError(err)
	}
	return nil
}

// readError classifies an error of the tar reader. An error of the layer's source keeps its own
// kind.
func readError(err error) error {
	if _, known := errors.AsType[*fault.Error](err); known || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fault.Wrap(err, fault.Invalid, CodeRefused, "a layer is not a complete tar archive")
}

// explain returns a classified error if a user can do something about it.
func explain(name string, err error) error {
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return fault.Wrap(err, fault.Exhausted, "disk_full", "the disk is full: the image could not be unpacked").WithHint("free some: crannog image prune")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrHeader), errors.Is(err, tar.ErrFieldTooLong):
		return readError(err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOENT), errors.Is(err, unix.EEXIST):
		return refused(name, err.Error())
	}
	return fmt.Errorf("unpack %.200q: %w", name, err)
}

// refused returns the error for an entry that cannot be unpacked.
func refused(name, why string) error {
	return fault.Newf(fault.Invalid, CodeRefused, "the entry %.200q of a layer cannot be unpacked: %s", name, why)
}

// boundedReader fails when more is read than an image may contain.
type boundedReader struct {
	r    io.Reader
	left int64
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fault.New(fault.Exhausted, CodeTooLarge, "a layer unpacks to more than the limit for an image")
	}
	return n, err
}

// cleanName returns the path of an entry relative to the root, "" for the root itself.
func cleanName(name string) (string, error) {
	if strings.ContainsRune(name, 0) || len(name) > maxPathLength {
		return "", refused(name, "its name is not a valid path")
	}
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	parts := strings.Split(name, "/")
	if len(parts) > maxDepth {
		return "", refused(name, "it is nested too deeply")
	}
	// Image builders write no "..", so an entry with one tries to leave the tree.
	if slices.Contains(parts, "..") {
		return "", refused(name, "it leads out of the tree")
	}
	return clean, nil
}

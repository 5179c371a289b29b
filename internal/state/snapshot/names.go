package snapshot

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// Names of the files of an image that do not belong to its writer.
const (
	manifestFile = "manifest"
	indexFile    = "index"
)

// validID limits names from callers to one path element that is neither hidden nor an option.
func validID(id string) error {
	ok := len(id) >= 1 && len(id) <= 64 && id[0] != '-' && id[0] != '_'
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return fault.New(fault.Invalid, "snapshot_id_invalid", "a snapshot's ID has 1 to 64 of a-z, 0-9, - and _, and begins with a letter or digit")
	}
	return nil
}

func imagePath(id string, name ...string) string {
	return path.Join(append([]string{imagesDir, id}, name...)...)
}

func packPath(pack, suffix string) string { return path.Join(packsDir, pack+suffix) }

// newName returns a random name that is unique.
func newName() string { return strings.ToLower(rand.Text()) }

// validPack reports whether newName could have made a name.
func validPack(name string) bool {
	return len(name) == packNameLen && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

const packNameLen = 26

var errIrregular = errors.New("not a regular file with the expected owner")

// openRegular opens a regular file. It rejects other kinds, such as a link that leads elsewhere or
// a pipe that would block.
func openRegular(root *os.Root, name string) (*os.File, error) {
	for range 100 {
		before, err := root.Lstat(name)
		if err != nil {
			return nil, err
		}
		if !before.Mode().IsRegular() {
			break
		}
		f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		after, err := f.Stat()
		if err == nil && os.SameFile(before, after) {
			return f, nil
		}
		// A manifest or an index was replaced just now.
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w", name, errIrregular)
}

func notFound(id string) error {
	return fault.Newf(fault.NotFound, "snapshot_not_found", "there is no image of snapshot %s", id)
}

// damaged returns the error for an image that differs from what was committed.
func damaged(id, what string, cause error) error {
	text := fmt.Sprintf("snapshot %s is damaged: %s", id, what)
	return fault.Wrap(cause, fault.Invalid, "snapshot_damaged", text).
		WithHint("remove it; its content cannot be trusted")
}

// readFault classifies an error of reading an image: a missing part is damage, other errors are the
// host's.
func readFault(id, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(id, name+" is missing", err)
	}
	if errors.Is(err, errIrregular) {
		return damaged(id, name+" is not a file", err)
	}
	if fault.KindOf(err) != fault.Internal {
		return err
	}
	return fmt.Errorf("read %s of image %s: %w", name, id, err)
}

// diskFault classifies a full disk. It returns other errors unchanged.
func diskFault(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.Wrap(err, fault.Exhausted, "disk_full", "the disk that holds snapshots is full").
			WithHint("free space, or remove snapshots with crannog snapshot rm")
	}
	return err
}

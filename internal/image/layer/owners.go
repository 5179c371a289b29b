package layer

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// maxSpecial bounds the number of owners that are recorded while layers are unpacked. Real images
// have far fewer files that do not belong to root.
const maxSpecial = 1 << 20

// note records the owner and the set-id bits of a file.
func (t *Tree) note(at string, o fileowners.Owner) error {
	if o == (fileowners.Owner{}) {
		delete(t.special, at)
		return nil
	}
	if _, known := t.special[at]; !known && len(t.special) >= maxSpecial {
		return fault.Newf(fault.Exhausted, CodeTooLarge, "the image has more than %d files that do not belong to root", maxSpecial)
	}
	t.special[at] = o
	return nil
}

// Owners returns the table of owners of the unpacked files. It must be called before Finish, while
// all directories can still be entered.
func (t *Tree) Owners() (fileowners.Table, error) {
	table := fileowners.Table{}
	if len(t.special) == 0 {
		return table, nil
	}
	top, err := t.find("")
	if err != nil {
		return nil, err
	}
	defer top.file.Close()
	if err := t.list(top, fileowners.Owner{}, table); err != nil {
		return nil, err
	}
	if len(table) > fileowners.MaxEntries {
		return nil, fault.Newf(fault.Exhausted, CodeTooLarge, "the image has %d files whose owner differs from that of their directory, and the limit is %d", len(table), fileowners.MaxEntries)
	}
	return table, nil
}

// list adds the files of a directory whose owner differs from the directory's, or that have set-id
// bits.
func (t *Tree) list(dir *openDirectory, parentOwner fileowners.Owner, table fileowners.Table) error {
	entries, err := entriesOf(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		at := path.Join(dir.path, e.Name())
		o := t.special[at]
		if o.UID != parentOwner.UID || o.GID != parentOwner.GID || o.SetID != 0 {
			table["/"+at] = o
		}
		if !e.IsDir() {
			continue
		}
		below, err := t.child(dir, e.Name())
		if err != nil {
			return err
		}
		if err := errors.Join(t.list(below, o, table), below.file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// entriesOf returns the entries of an open directory.
func entriesOf(dir *openDirectory) ([]fs.DirEntry, error) {
	fd, err := unix.Openat(int(dir.file.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir.path)
	defer f.Close()
	return f.ReadDir(-1)
}

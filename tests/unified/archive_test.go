package unified_test

import (
	"bytes"
	"fmt"
	"os"
)

// archive is the initial root file system of the kernel: a cpio archive in the format of the
// kernel's initramfs documentation.
type archive struct {
	bytes.Buffer
	entries int
}

const (
	cpioDirectory = 0o040755
	cpioFile      = 0o100755
)

// add appends an entry. The numbers of its header are inode, mode, owner, group, links, time, size,
// four numbers of devices, the length of the name, and a checksum that this format does not use.
func (a *archive) add(mode uint32, name string, data []byte) {
	a.entries++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.entries, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(data)
	a.pad()
}

// pad aligns the archive to four bytes.
func (a *archive) pad() { a.Write(make([]byte, -a.Len()&3)) }

// file appends a copy of a file of the host.
func (a *archive) file(name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.add(cpioFile, name, data)
	return nil
}

// end appends the last entry and returns the archive.
func (a *archive) end() []byte {
	a.add(0, "TRAILER!!!", nil)
	return a.Bytes()
}

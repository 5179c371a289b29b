package unified_test

import (
	"bytes"
	"fmt"
	"os"
)

// archive is the kernel's first root: a cpio archive in the format of the kernel's initramfs
// documentation.
type archive struct {
	bytes.Buffer
	entries int
}

const (
	cpioDirectory = 0o040755
	cpioFile      = 0o100755
)

func (a *archive) add(mode uint32, name string, data []byte) {
	a.entries++
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.entries, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() { a.Write(make([]byte, -a.Len()&3)) }

func (a *archive) file(name, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	a.add(cpioFile, name, data)
	return nil
}

func (a *archive) end() []byte {
	a.add(0, "TRAILER!!!", nil)
	return a.Bytes()
}

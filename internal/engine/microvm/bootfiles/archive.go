package bootfiles

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// archive writes what the kernel unpacks as its first root: a cpio archive in the format of the
// kernel's documentation of the initramfs.
type archive struct {
	w       *bufio.Writer
	entries int
	written int64
}

const (
	modeDirectory = 0o040755
	modeFile      = 0o100755
)

func (a *archive) header(mode uint32, name string, size int64) {
	a.entries++
	n, _ := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", // Flush reports an error
		a.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.written += int64(n)
	a.pad()
}

// pad fills up to a multiple of four.
func (a *archive) pad() {
	n, _ := a.w.Write(make([]byte, -a.written&3)) // Flush reports an error
	a.written += int64(n)
}

func (a *archive) directory(name string) { a.header(modeDirectory, name, 0) }

func (a *archive) text(name, text string) {
	a.header(modeFile, name, int64(len(text)))
	n, _ := a.w.WriteString(text) // Flush reports an error
	a.written += int64(n)
	a.pad()
}

func (a *archive) file(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	a.header(modeFile, name, info.Size())
	n, err := io.CopyN(a.w, f, info.Size())
	a.written += n
	a.pad()
	return err
}

func (a *archive) end() error {
	a.header(0, "TRAILER!!!", 0)
	return errors.Join(a.w.Flush())
}

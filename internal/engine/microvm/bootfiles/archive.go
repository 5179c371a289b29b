package bootfiles

import (
	"bufio"
	"fmt"
	"io"
	"os"
)

// archive writes a cpio archive that the kernel unpacks as its first root (initramfs).
type archive struct {
	w       *bufio.Writer
	entries int
	written int64
}

// Modes of the entries.
const (
	modeDirectory = 0o040755
	modeFile      = 0o100755
)

// header writes the header of an entry.
func (a *archive) header(mode uint32, name string, size int64) {
	a.entries++
	n, _ := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", // Flush reports an error
		a.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	a.written += int64(n)
	a.pad()
}

// pad writes zeros up to a multiple of four bytes.
func (a *archive) pad() {
	n, _ := a.w.Write(make([]byte, -a.written&3)) // Flush reports an error
	a.written += int64(n)
}

// directory writes a directory.
func (a *archive) directory(name string) { a.header(modeDirectory, name, 0) }

// text writes a file with this text.
func (a *archive) text(name, text string) {
	a.header(modeFile, name, int64(len(text)))
	n, _ := a.w.WriteString(text) // Flush reports an error
	a.written += int64(n)
	a.pad()
}

// file writes a copy of a file of the host.
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

// end completes the archive.
func (a *archive) end() error {
	a.header(0, "TRAILER!!!", 0)
	return a.w.Flush()
}

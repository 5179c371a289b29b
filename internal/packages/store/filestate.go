package store

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// FileState identifies the content of a file beside the cache, which its writers only replace.
type FileState struct {
	Size           int64
	dev, ino       uint64
	modified, meta unix.Timespec
}

// StateOf returns the state of an open regular file.
func StateOf(f *os.File) (FileState, error) {
	var info unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &info); err != nil {
		return FileState{}, err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return FileState{}, errors.New("it is not a file")
	}
	return FileState{Size: info.Size, dev: info.Dev, ino: info.Ino, modified: info.Mtim, meta: info.Ctim}, nil
}

package embedded

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// inUse holds the programs that this process has requested, by path. Each is kept open with a
// shared lock until the process ends, because a server may start its next sandbox long after it
// requested the program.
var inUse struct {
	sync.Mutex
	files map[string]*os.File
}

// use protects a program from Prune, in this process and in others. It returns an fs.ErrNotExist
// error if the file was removed before it was locked.
func use(path string) error {
	inUse.Lock()
	defer inUse.Unlock()
	if f := inUse.files[path]; f != nil && sameFile(f, path) {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
		f.Close()
		return fmt.Errorf("lock %s: %w", path, err)
	}
	if !sameFile(f, path) {
		f.Close()
		return &os.PathError{Op: "use", Path: path, Err: unix.ENOENT}
	}
	// The modification time is the time of the last use. An error does not matter, because a
	// directory that cannot be written to is never pruned.
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	if inUse.files == nil {
		inUse.files = map[string]*os.File{}
	}
	if old := inUse.files[path]; old != nil {
		old.Close()
	}
	inUse.files[path] = f
	return nil
}

// sameFile reports whether the path still refers to the open file.
func sameFile(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(open, named)
}

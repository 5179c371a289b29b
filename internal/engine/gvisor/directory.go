package gvisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// errReplaced is the error for a sandbox whose directory now belongs to another one.
var errReplaced = errors.New("another process has replaced the sandbox")

// kept opens the directory of a sandbox and reads its record. Another process may exchange the
// directory with another sandbox's at any time. The returned path leads to the same one until done
// is called. The caller holds b.mu.
func (b *instance) kept() (rec record, dir string, done func(), err error) {
	dir, done, err = sandboxdir.Short(b.dir)
	if err != nil {
		return rec, "", nil, err
	}
	rec, err = readRecord(dir)
	if err == nil && rec.Sentry != b.rec.Sentry {
		err = errReplaced
	}
	if err != nil {
		done()
	}
	return rec, dir, done, err
}

// move gives a sandbox an ID and the directory for it. With RENAME_EXCHANGE, the sandbox that had
// the ID gets the former directory.
func (b *instance) move(id string, flags uint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.rec
	rec.ID = id
	// The record names the kernel, so it is correct before and after the move.
	if err := rec.write(b.dir); err != nil {
		return err
	}
	dir := b.e.instanceDir(id)
	if err := unix.Renameat2(unix.AT_FDCWD, b.dir, unix.AT_FDCWD, dir, flags); err != nil {
		return err
	}
	b.rec.ID, b.dir = id, dir // no other field: its memory watch is running
	return nil
}

// adopt records that this process has to remove what is left of a replaced sandbox. The process
// that created the sandbox may run for long, and after a crash of this process no other would
// remove it.
func (b *instance) adopt() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return err
	}
	kept, dir, done, err := b.kept()
	if err != nil {
		return err
	}
	defer done()
	kept.Creator = self
	return kept.write(dir)
}

// replaceBy gives this sandbox's directory to a running sandbox. A caller that finds this sandbox
// dead waits until the move is done and both directories are known.
func (b *instance) replaceBy(next *instance, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	spare := next.dir
	if err := next.move(id, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	b.dir = spare
	return nil
}

package gvisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// errReplaced is the error for a sandbox whose directory belongs to another by now.
var errReplaced = errors.New("another process has put another box in its place")

// kept opens the directory of a sandbox and reads its record. Another process may
// exchange it with another sandbox's at any time: the path leads to one and the
// same, until done is called. b.mu must be held.
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

// move gives a sandbox an ID and the directory of it. With RENAME_EXCHANGE its
// former directory is that of the sandbox that had the ID.
func (b *instance) move(id string, flags uint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.rec
	rec.ID = id
	// The record is right before and after the move: it names the kernel.
	if err := rec.write(b.dir); err != nil {
		return err
	}
	dir := b.e.instanceDir(id)
	if err := unix.Renameat2(unix.AT_FDCWD, b.dir, unix.AT_FDCWD, dir, flags); err != nil {
		return err
	}
	b.rec.ID, b.dir = id, dir // nothing else: its memory watch is running
	return nil
}

// adopt records that this process has to remove what is left of a replaced sandbox. The process
// that made the sandbox may live for long, and after a crash of this one no process would remove
// it.
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
// dead waits until the move is done and each sandbox's directory is known.
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

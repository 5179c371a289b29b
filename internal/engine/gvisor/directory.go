package gvisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// errReplaced is the error for a sandbox whose directory now belongs to another sandbox.
var errReplaced = errors.New("another process has replaced the sandbox")

// openDirectory opens the directory of a sandbox and reads its record. Another process may exchange
// the directory with that of another sandbox at any time, but the returned path leads to the opened
// directory until done is called. The caller holds b.mu.
func (b *instance) openDirectory() (rec record, dir string, done func(), err error) {
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
	b.rec.ID, b.dir = id, dir // no other field, because the memory watch reads them
	return nil
}

// adopt records this process as the creator of a sandbox that is about to be replaced. After a
// crash of this process, the cleanup then removes the sandbox. With the former creator, which may
// run for long, it would not.
func (b *instance) adopt() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	self, err := process.Identify(os.Getpid())
	if err != nil {
		return err
	}
	rec, dir, done, err := b.openDirectory()
	if err != nil {
		return err
	}
	defer done()
	rec.Creator = self
	return rec.write(dir)
}

// replaceBy gives this sandbox's directory to a running sandbox. A caller that finds this sandbox
// dead waits until the move is done and both directories are known.
func (b *instance) replaceBy(next *instance, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	nextDir := next.dir
	if err := next.move(id, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	b.dir = nextDir
	return nil
}

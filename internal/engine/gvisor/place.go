package gvisor

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errReplaced is what a box is told whose directory is another's by now.
var errReplaced = errors.New("another process has put another box in its place")

// kept opens the directory of a box and reads its record. Another process may
// exchange it with another box's at any time: the path leads to one and the
// same, until done is called. b.mu must be held.
func (b *box) kept() (rec record, dir string, done func(), err error) {
	dir, done, err = throughDescriptor(b.dir)
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

// move gives a box an ID and the directory of it. With RENAME_EXCHANGE its
// former directory is that of the box that had the ID.
func (b *box) move(id string, flags uint) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	rec := b.rec
	rec.ID = id
	// The record is right before and after the move: it names the kernel.
	if err := rec.write(b.dir); err != nil {
		return err
	}
	dir := b.e.boxDir(id)
	if err := unix.Renameat2(unix.AT_FDCWD, b.dir, unix.AT_FDCWD, dir, flags); err != nil {
		return err
	}
	b.rec.ID, b.dir = id, dir // nothing else: its memory is watched meanwhile
	return nil
}

// adopt records that what is left of a replaced box is this process's to remove:
// whoever made the box may live on for long, and nobody would after a crash.
func (b *box) adopt() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	self, err := identify(os.Getpid())
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

// makeWay lets a running box have this one's directory. Whoever finds this one
// dead meanwhile waits until it is known which directory is its own.
func (b *box) makeWay(next *box, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	spare := next.dir
	if err := next.move(id, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	b.dir = spare
	return nil
}

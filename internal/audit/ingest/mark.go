package ingest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/diskroom"
)

// markSuffix is the suffix of the file beside a sandbox's lines that identifies their last reader.
// The reader holds a lock on it.
const markSuffix = ".mark"

// lockInterval is the interval of attempts to lock while another process reads.
const lockInterval = 5 * time.Millisecond

// nonce identifies a process. Processes never share one, unlike PIDs.
type nonce [16]byte

func newNonce() (n nonce) {
	rand.Read(n[:]) // never fails: the runtime ends the program instead
	return n
}

// mark is the file with markSuffix. It has the nonce of the last reader, and a flag that the end of
// the sandbox is being written.
type mark struct{ f *os.File }

// open opens the mark, unless it is open.
func (m *mark) open(path string) error {
	if m.f != nil {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("event files: %w", err)
	}
	m.f = f
	return nil
}

// newMark creates the file, and reports whether it did not exist.
func newMark(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("event files: %w", err)
	}
	return true, errors.Join(diskroom.Preallocate(f, 0, markBytes), f.Close())
}

// markBytes is the disk space reserved for a mark.
const markBytes = 4 << 10

func (m *mark) close() error {
	if m.f == nil {
		return nil
	}
	err := m.f.Close()
	m.f = nil
	return err
}

// lock waits until no other process reads. The kernel releases the lock when its holder ends.
func (m *mark) lock(ctx context.Context) error {
	for {
		err := unix.Flock(int(m.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("event files: lock: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("event files: lock: %w", ctx.Err())
		case <-time.After(lockInterval):
		}
	}
}

// unlock cannot fail: the file is open.
func (m *mark) unlock() { _ = unix.Flock(int(m.f.Fd()), unix.LOCK_UN) }

// take registers this process as the reader, and reports whether another process has read since
// this one did.
func (m *mark) take(n nonce) (other bool, err error) {
	var last nonce
	got, err := m.f.ReadAt(last[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("event files: %w", err)
	}
	if bytes.Equal(last[:], n[:]) {
		return false, nil
	}
	if _, err := m.f.WriteAt(n[:], 0); err != nil {
		return false, fmt.Errorf("event files: %w", err)
	}
	return got > 0, nil
}

// setEnding sets the flag that the end of the sandbox is being written, and reports whether it was
// set before.
func (m *mark) setEnding() (bool, error) {
	value := []byte{0}
	if _, err := m.f.ReadAt(value, int64(len(nonce{}))); err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("event files: %w", err)
	}
	if value[0] == 'E' {
		return true, nil
	}
	if _, err := m.f.WriteAt([]byte{'E'}, int64(len(nonce{}))); err != nil {
		return false, fmt.Errorf("event files: %w", err)
	}
	return false, nil
}

package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// lockWait limits the wait for another process, which normally holds the lock for milliseconds. A
// process that is suspended while it holds the lock must not block all others.
const lockWait = 10 * time.Second

// locked calls work with the lock of the log held, so that no other process writes. Before that, it
// reads the entries that other processes have written.
func (l *Log) locked(ctx context.Context, work func() error) error {
	l.files.Lock()
	defer l.files.Unlock()
	if err := l.acquire(ctx); err != nil {
		return err
	}
	err := l.catchUp()
	if err == nil {
		err = work()
	}
	if unlock := unix.Flock(int(l.lock.Fd()), unix.LOCK_UN); unlock != nil {
		err = errors.Join(err, fmt.Errorf("unlock: %w", unlock))
	}
	return err
}

// acquire takes the lock between processes. It waits for at most lockWait.
func (l *Log) acquire(ctx context.Context) error {
	pause := 200 * time.Microsecond
	for deadline := time.Now().Add(lockWait); ; {
		err := unix.Flock(int(l.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock: %w", err)
		case time.Now().After(deadline):
			return fmt.Errorf("lock: another process has held it for %v", lockWait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Millisecond)
	}
}

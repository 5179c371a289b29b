package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockWait is how long a server waits for the lock. A process that a killed server was starting has a
// copy of the lock's descriptor until it executes its program, and so keeps the lock for a moment.
const (
	lockWait  = 3 * time.Second
	lockRetry = 10 * time.Millisecond
)

// lockServer takes the lock of a state directory's only server. The kernel releases it when the
// process ends in any way, so there is no stale lock.
func lockServer(dir string) (*os.File, error) {
	path := filepath.Join(dir, "serve.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	for end := time.Now().Add(lockWait); ; time.Sleep(lockRetry) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(serverRunning(dir), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

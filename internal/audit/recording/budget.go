package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// block is the minimum disk space of a file.
	block = 4 << 10
	// share divides the budget: disk usage is measured again after a 16th of it was written.
	share = 16
	// keepShare is the percentage of the budget that remains after the oldest recordings are
	// dropped, so that the next measurement is not due at once.
	keepShare = 90
)

// spentFile has the number of bytes that all processes have written since the last measurement.
const spentFile = "spent"

// spend counts written bytes, and measures the disk usage after enough of them.
func (s *Store) spend(bytes int64) {
	s.mu.Lock()
	s.spent += bytes
	exceeded := s.spent >= s.budget/share/4
	s.mu.Unlock()
	if exceeded {
		if err := s.updateTotal(); err != nil {
			s.log.Warn("old recordings not dropped", "err", err)
		}
	}
}

// updateTotal adds this process's bytes to the sum of all processes, and drops the oldest
// recordings if the sum is large.
func (s *Store) updateTotal() error {
	s.mu.Lock()
	spent := s.spent
	s.spent = 0
	s.mu.Unlock()
	return s.exclusive(func(sum *os.File) error {
		text := make([]byte, 32)
		n, _ := sum.ReadAt(text, 0) // an empty file means zero
		before, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
		if err != nil || before < 0 {
			before = 0
			if n > 0 {
				before = s.budget // the content is invalid: measure now
			}
		}
		total := before + spent
		if total >= s.budget/share {
			if err := s.sweep(); err != nil {
				return err
			}
			total = 0
		}
		if err := sum.Truncate(0); err != nil {
			return err
		}
		_, err = sum.WriteAt([]byte(strconv.FormatInt(total, 10)), 0)
		return err
	})
}

// Sweep drops the oldest recordings beyond the budget.
func (s *Store) Sweep() error {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.exclusive(func(*os.File) error { return s.sweep() })
}

// exclusive calls do while no other process does the same.
func (s *Store) exclusive(do func(sum *os.File) error) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, spentFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	if err == nil {
		err = do(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("recordings: %w", err)
	}
	return nil
}

// candidate is a file that can be dropped.
type candidate struct {
	path    string
	bytes   int64
	written time.Time
}

// sweep drops the oldest recordings. The caller holds the lock.
func (s *Store) sweep() error {
	all, total, err := s.listRemovable()
	if err != nil || total <= s.budget {
		return err
	}
	slices.SortFunc(all, func(a, b candidate) int { return a.written.Compare(b.written) })
	dropped := 0
	for _, k := range all {
		if total <= s.budget/100*keepShare {
			break
		}
		// A writer of the removed file notices that the file has no name any more.
		if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= k.bytes
		dropped++
	}
	s.log.Info("oldest recordings dropped", "files", dropped)
	return nil
}

// listRemovable returns all files that can be dropped, and the total disk usage.
func (s *Store) listRemovable() (all []candidate, total int64, err error) {
	ids, err := s.List()
	if err != nil {
		return nil, 0, err
	}
	for _, id := range ids {
		entries, err := os.ReadDir(filepath.Join(s.dir, id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, 0, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil { // removed just now
				continue
			}
			bytes := max((info.Size()+block-1)/block, 1) * block
			total += bytes
			_, isOwn := parseOwnName(e.Name())
			_, isPack := parsePackName(e.Name())
			if isOwn || isPack {
				all = append(all, candidate{filepath.Join(s.dir, id, e.Name()), bytes, info.ModTime()})
			}
		}
	}
	return all, total, nil
}

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
	// block is what a file takes at least.
	block = 4 << 10
	// share of the budget may be written between two looks at the disk.
	share = 16
	// keepShare in a hundred of the budget stay when the oldest go, so that it
	// is not looked at again at once.
	keepShare = 90
)

// spentFile sums up what all processes have written since the last look.
const spentFile = "spent"

// spend counts what was written, and looks at the disk when it is much.
func (s *Shelf) spend(bytes int64) {
	s.mu.Lock()
	s.spent += bytes
	due := s.spent >= s.budget/share/4
	s.mu.Unlock()
	if due {
		if err := s.settle(); err != nil {
			s.log.Warn("recordings not bounded", "err", err)
		}
	}
}

// settle adds to the common sum, and drops the oldest recordings if that has
// become much.
func (s *Shelf) settle() error {
	s.mu.Lock()
	spent := s.spent
	s.spent = 0
	s.mu.Unlock()
	return s.exclusive(func(sum *os.File) error {
		text := make([]byte, 32)
		n, _ := sum.ReadAt(text, 0) // an empty file is a sum of nothing
		before, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
		if err != nil || before < 0 {
			before = 0
			if n > 0 {
				before = s.budget // not ours: look
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
func (s *Shelf) Sweep() error {
	if _, err := os.Stat(s.dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.exclusive(func(*os.File) error { return s.sweep() })
}

// exclusive does something while no other process does.
func (s *Shelf) exclusive(do func(sum *os.File) error) error {
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

// kept is one file that can be dropped.
type kept struct {
	path    string
	bytes   int64
	written time.Time
}

// sweep drops the oldest. The lock must be held.
func (s *Shelf) sweep() error {
	all, total, err := s.survey()
	if err != nil || total <= s.budget {
		return err
	}
	slices.SortFunc(all, func(a, b kept) int { return a.written.Compare(b.written) })
	dropped := 0
	for _, k := range all {
		if total <= s.budget/100*keepShare {
			break
		}
		// Who writes to it finds out that it has no name any more.
		if err := os.Remove(k.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total -= k.bytes
		dropped++
	}
	s.log.Info("oldest recordings dropped", "files", dropped)
	return nil
}

// survey finds all that can be dropped, and what everything takes.
func (s *Shelf) survey() (all []kept, total int64, err error) {
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
			if err != nil { // gone this moment
				continue
			}
			bytes := max((info.Size()+block-1)/block, 1) * block
			total += bytes
			_, isOwn := ownOf(e.Name())
			_, isReel := reelOf(e.Name())
			if isOwn || isReel {
				all = append(all, kept{filepath.Join(s.dir, id, e.Name()), bytes, info.ModTime()})
			}
		}
	}
	return all, total, nil
}

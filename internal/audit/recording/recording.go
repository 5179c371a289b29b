// Package recording owns the recordings of commands' output: their numbers, their files below the
// state directory, lists of them, and their disk usage. Package asciicast owns their format.
//
// Each sandbox has one index. Each command adds a line to it at its start, which assigns its
// number, and another at its end. The output of a short command is appended to a pack, a file for
// many commands, because creating a file costs more than most commands. A longer command gets a
// file of its own, so that its output can be followed.
package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// DefaultBudget is the default disk space for all recordings of a state directory.
const DefaultBudget = 1 << 30

// Options configure New. Dir is required.
type Options struct {
	Dir string
	// Bound is the maximum size of one recording. Budget is the maximum size of all recordings.
	// Zero means the default.
	Bound, Budget int64
	Log           *slog.Logger // nil discards
	// Step, if not nil, is called at each step of Retain and Remove, where tests can let the
	// process end.
	Step func(name string)
}

// Store has the recordings of a state directory. Several processes may open the same directory.
type Store struct {
	dir           string
	bound, budget int64
	log           *slog.Logger
	step          func(string)

	mu        sync.Mutex
	histories map[string]*history // sandboxes that had commands in this process
	// spent is the number of bytes written since it was last added to the sum that all processes
	// share.
	spent int64
}

// New returns the Store. It creates directories when a recording needs them. The caller must call
// Close.
func New(o Options) *Store {
	s := &Store{dir: o.Dir, bound: o.Bound, budget: o.Budget, log: o.Log, step: o.Step, histories: map[string]*history{}}
	if s.bound <= 0 {
		s.bound = asciicast.DefaultBound
	}
	if s.budget <= 0 {
		s.budget = DefaultBudget
	}
	if s.step == nil {
		s.step = func(string) {}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// path returns the directory of a sandbox.
func (s *Store) path(sandbox string) (string, error) {
	// The ID becomes part of a path, so it must contain only characters of the ID alphabet.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, sandbox), nil
}

// history returns the history of a sandbox for one recording. The caller must call done afterwards.
func (s *Store) history(sandbox string) (*history, error) {
	dir, err := s.path(sandbox)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.histories[sandbox]
	if r == nil {
		if len(s.histories) >= maxOpen {
			if err := s.releaseOne(); err != nil {
				return nil, err
			}
		}
		r = &history{dir: dir}
		s.histories[sandbox] = r
	}
	r.running++
	return r, nil
}

// done ends the use of a history.
func (s *Store) done(r *history) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.running--
}

// maxOpen limits the number of sandboxes whose files are open. Beyond it, files are opened for each
// use.
const maxOpen = 128

// releaseOne closes the files of a sandbox without running commands. A history with running
// commands must remain, because Remove has to reach it. Otherwise the end of the command would
// create the directory again. The caller holds s.mu.
func (s *Store) releaseOne() error {
	var busy *history
	for id, r := range s.histories {
		if r.running == 0 {
			delete(s.histories, id)
			return r.release()
		}
		busy = r
	}
	if busy == nil {
		return nil
	}
	return busy.release()
}

// Release closes the files of a sandbox that has ended. If a command ends later, its files are
// opened only for that.
func (s *Store) Release(sandbox string) error {
	s.mu.Lock()
	r := s.histories[sandbox]
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.closeIdle()
}

// Remove removes all recordings of a sandbox. It is not an error if there are none.
func (s *Store) Remove(sandbox string) error {
	path, err := s.path(sandbox)
	if err != nil {
		return err
	}
	s.mu.Lock()
	r := s.histories[sandbox]
	delete(s.histories, sandbox)
	s.mu.Unlock()
	if r != nil {
		err = r.closeForGood()
	}
	// Remove retainedFile first: if the process is killed in between, incomplete recordings must
	// not be listed as retained.
	err = errors.Join(err, s.Discard(sandbox))
	s.step("let")
	if err = errors.Join(err, os.RemoveAll(path)); err != nil {
		return fmt.Errorf("recordings of %s: %w", sandbox, err)
	}
	return nil
}

// List returns the sandboxes that have recordings.
func (s *Store) List() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("recordings: %w", err)
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() && ids.ValidSandbox(e.Name()) {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// Close closes all files, and adds what this process has written to the common sum.
func (s *Store) Close() error {
	s.mu.Lock()
	histories, unsaved := s.histories, s.spent > 0
	s.histories = map[string]*history{}
	s.mu.Unlock()
	var errs []error
	for _, r := range histories {
		errs = append(errs, r.release())
	}
	if unsaved {
		errs = append(errs, s.updateTotal())
	}
	return errors.Join(errs...)
}

// Names of files in the directory of a sandbox.
const (
	indexFile = "index"
	ownSuffix = ".cast" // after the number of a command
	reelStart = "reel." // before the number of a pack, as in earlier versions
)

// ownName and packName return names of files.
func ownName(n int) string  { return strconv.Itoa(n) + ownSuffix }
func packName(n int) string { return reelStart + strconv.Itoa(n) }

// parseOwnName and parsePackName return the number in the name of a file.
func parseOwnName(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, ownSuffix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && ownName(n) == name
}

func parsePackName(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, reelStart)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && packName(n) == name
}

// notFound returns the fault for a recording that does not exist.
func notFound(sandbox string, n int) error {
	return fault.Newf(fault.NotFound, "recording_not_found", "sandbox %s has no recording %d", sandbox, n).
		WithHint("the oldest recordings are dropped when all together exceed their budget; crannog logs lists the others")
}

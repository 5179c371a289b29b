// Package recording owns the recordings of commands' output: their numbers, their files below the
// state directory, lists of them, and their disk usage. Package asciicast owns their format.
//
// A sandbox has one index, to which each command adds a line when it begins
// and one when it has ended, and which gives the numbers. What a short command
// printed goes to the end of a file for many, because making a file costs more
// than most commands; a longer one has a file of its own from the moment on in
// which somebody could want to watch it.
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
	// Bound is the maximum size of one recording, Budget that of all. Zero means the default of
	// each.
	Bound, Budget int64
	Log           *slog.Logger // nil discards
	// Step, unless nil, is called at each step of Keep and Remove at which tests let the process
	// die.
	Step func(name string)
}

// Store holds the recordings of a state directory. Several processes may open one at once.
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

// New returns the Store. It creates directories when a recording needs them. Close ends it.
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
	// The ID becomes part of a path: only its own alphabet may pass.
	if err := ids.CheckSandbox(sandbox); err != nil {
		return "", err
	}
	return filepath.Join(s.dir, sandbox), nil
}

// history returns the history of a sandbox for one recording. The caller calls done afterwards.
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

// maxOpen bounds the sandboxes whose files are open. Beyond it, files are opened for each use.
const maxOpen = 128

// releaseOne closes the files of a sandbox without running commands. A history with running commands
// must stay known: Remove has to reach it, or the end of the command would create the directory
// again. The caller holds s.mu.
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

// Release closes the files of a sandbox that has ended. The end of a command after that opens them
// for a moment.
func (s *Store) Release(sandbox string) error {
	s.mu.Lock()
	r := s.histories[sandbox]
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.rest()
}

// Remove drops all recordings of a sandbox. It is no error if there are none.
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
		err = r.bury()
	}
	// Remove keptFile first: if the process dies in between, the rest must not look complete.
	err = errors.Join(err, s.Let(sandbox))
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
	histories, idle := s.histories, s.spent == 0
	s.histories = map[string]*history{}
	s.mu.Unlock()
	var errs []error
	for _, r := range histories {
		errs = append(errs, r.release())
	}
	if !idle {
		errs = append(errs, s.settle())
	}
	return errors.Join(errs...)
}

// Files in the directory of a sandbox.
const (
	indexFile = "index"
	ownSuffix = ".cast" // after the number of a command
	reelStart = "pack." // before the number of a pack
)

func own(n int) string  { return strconv.Itoa(n) + ownSuffix }
func pack(n int) string { return reelStart + strconv.Itoa(n) }

// ownOf and packOf parse such names.
func ownOf(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, ownSuffix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && own(n) == name
}

func packOf(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, reelStart)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && pack(n) == name
}

func unknown(sandbox string, n int) error {
	return fault.Newf(fault.NotFound, "recording_not_found", "sandbox %s has no recording %d", sandbox, n).
		WithHint("the oldest recordings are dropped when all together exceed their budget; crannog logs lists the rest")
}

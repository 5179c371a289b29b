// Package records owns the files that describe builds, and what is removed after a process with
// builds has died.
package records

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/image/layer"
	"github.com/crannog/crannog/internal/sandbox"
)

// Summary is what the records of all kinds of builds have in common.
type Summary struct {
	ID, Owner string
	Created   time.Time
	Ended     bool // nothing of the build runs any more
	Process   sandbox.Process
}

// Record is the stored description of a build.
type Record interface {
	Summary() Summary
}

// Store is a directory with one record for each build.
type Store[R Record] struct {
	Dir string
	Log string // the ending of each build's log beside its record; "" if there are none
}

// maxEnded is the maximum number of ended builds that are stored.
const maxEnded = 200

// recordSuffix is the suffix of the file names of records.
const recordSuffix = ".json"

// Put stores a record durably.
func (s Store[R]) Put(r R) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(s.Dir, r.Summary().ID+recordSuffix), data, durable.Options{Draft: ".record-*", Mode: 0o600, Sync: true})
}

// Remove deletes the record of a build and its log.
func (s Store[R]) Remove(id string) error {
	names := []string{id + recordSuffix}
	if s.Log != "" {
		names = []string{id + s.Log, id + recordSuffix}
	}
	var errs []error
	for _, name := range names {
		if err := os.Remove(filepath.Join(s.Dir, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// List returns the records, newest first, and removes the oldest if there are too many.
func (s Store[R]) List() ([]R, error) {
	files, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, err
	}
	var list []R
	for _, f := range files {
		id, isRecord := strings.CutSuffix(f.Name(), recordSuffix)
		if !isRecord {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.Dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var r R
		if json.Unmarshal(data, &r) == nil && r.Summary().ID == id {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b R) int { return b.Summary().Created.Compare(a.Summary().Created) })
	for i := maxEnded; i < len(list); i++ {
		if old := list[i].Summary(); old.Ended {
			_ = s.Remove(old.ID) // the next list tries again
		}
	}
	return list, nil
}

// ListFor returns the records that a caller may see, newest first.
func (s Store[R]) ListFor(caller sandbox.Principal) ([]R, error) {
	all, err := s.List()
	return slices.DeleteFunc(all, func(r R) bool { return !caller.Local && r.Summary().Owner != caller.KeyID }), err
}

// Repair calls interrupted for each build whose process died; interrupted has to store the end of
// the build. Repair then removes the directories in work of all builds that do not run.
func (s Store[R]) Repair(work string, interrupted func(R) error) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	var errs []error
	running := map[string]bool{}
	for _, r := range all {
		b := r.Summary()
		if !b.Ended && !b.Process.Alive() {
			errs = append(errs, interrupted(r))
			b.Ended = true
		}
		running[b.ID] = !b.Ended
	}
	entries, err := os.ReadDir(work)
	errs = append(errs, err)
	for _, e := range entries {
		if !running[e.Name()] {
			errs = append(errs, layer.RemoveTree(filepath.Join(work, e.Name())))
		}
	}
	return errors.Join(errs...)
}

package jail

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// record describes a sandbox, and is stored in its directory. The first version is written before
// anything is made, and the version with the first process before that process does anything. So a
// crash at any step leaves enough to find and free the rest.
type record struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Limits  engine.Limits   `json:"limits"`
	Slot    int             `json:"slot"` // its range of IDs; -1 is none
	Group   *cgroup.Group   `json:"group,omitempty"`
	Init    process.Process `json:"init"` // the first process
	Exit    *engine.Exit    `json:"exit,omitempty"`
}

func readRecord(dir string) (rec record, err error) {
	err = sandboxdir.Read(dir, &rec)
	return rec, err
}

func (r record) write(dir string) error { return sandboxdir.Write(dir, r) }

// Each sandbox has a range of the host's IDs of its own, so that a program that got out
// of one could not touch the processes of another. They are far above those of people
// and of most other tools.
const (
	firstID  = 1 << 30
	rangeIDs = 1 << 16
	ranges   = 8192
)

// idBase is the host's ID of the sandbox's root.
func (r record) idBase() int { return firstID + r.Slot*rangeIDs }

// slots is a directory with a link for each range that is taken, to the sandbox's ID.
func (e *Engine) slots() string { return filepath.Join(e.dir, ".ids") }

// takeSlot takes a range of IDs for a sandbox, whose directory exists.
func (e *Engine) takeSlot(id string) (int, error) {
	if e.rootless {
		return -1, nil
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(id)) // writing to a hash does not fail
	for i := range ranges {
		slot := (int(hash.Sum32()%ranges) + i) % ranges
		link := filepath.Join(e.slots(), strconv.Itoa(slot))
		for {
			err := os.Symlink(id, link)
			if err == nil {
				return slot, nil
			}
			if !errors.Is(err, fs.ErrExist) {
				return -1, err
			}
			if !e.abandoned(link) {
				break
			}
			if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return -1, err
			}
		}
	}
	return -1, errors.New("all ranges of IDs are taken")
}

// abandoned reports whether a range is of a sandbox that does not exist any more.
func (e *Engine) abandoned(link string) bool {
	id, err := os.Readlink(link)
	if err != nil {
		return false
	}
	_, err = os.Lstat(e.boxDir(id))
	return errors.Is(err, fs.ErrNotExist)
}

// freeSlots gives back the ranges of a sandbox.
func (e *Engine) freeSlots(rec record) error {
	names := []string{strconv.Itoa(rec.Slot)}
	if rec.Init.PID == 0 {
		// A creation that was cut short may have taken one that no record names.
		names = nil
		entries, err := os.ReadDir(e.slots())
		if err != nil {
			return err
		}
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
	}
	var errs []error
	for _, name := range names {
		link := filepath.Join(e.slots(), name)
		if id, err := os.Readlink(link); err == nil && id == rec.ID {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

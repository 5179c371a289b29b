package jail

import (
	"errors"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// record describes a sandbox and is stored in its directory. It is written before anything else is
// created, and again with the first process before that process does anything. After a crash at any
// step, the record is enough to find and free the rest.
type record struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Limits  engine.Limits   `json:"limits"`
	Slot    int             `json:"slot"` // its range of IDs; -1 is none
	Group   *cgroup.Group   `json:"group,omitempty"`
	Init    process.Process `json:"init"` // the first process
	Exit    *engine.Exit    `json:"exit,omitempty"`
	// Events is the file into which events are written, if the sandbox is observed.
	Events *storedEvents `json:"events,omitempty"`
}

func readRecord(dir string) (rec record, err error) {
	err = sandboxdir.Read(dir, &rec)
	return rec, err
}

func (r record) write(dir string) error { return sandboxdir.Write(dir, r) }

// Each sandbox has its own range of the host's IDs, so that a program that escaped from one could
// not touch the processes of another. The ranges are far above those that hosts usually assign.
const (
	firstID  = 1 << 30
	rangeIDs = 1 << 16
	ranges   = 8192
)

// idBase returns the first of the host's IDs of the sandbox, which is root in it.
func (r record) idBase() int { return firstID + r.Slot*rangeIDs }

// slots returns the directory with a link for each range in use. The engine and its variants share
// it, because a range belongs to one sandbox on the host.
func (e *Engine) slots() string { return filepath.Join(e.state, "jail", ".ids") }

// holder returns the target of the link of a sandbox's range: the sandbox's ID, or NAME/ID for a
// variant.
func (e *Engine) holder(id string) string {
	if e.variant == nil {
		return id
	}
	return e.variant.Name + "/" + id
}

// takeSlot reserves a range of IDs for a sandbox, whose directory exists.
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
			err := os.Symlink(e.holder(id), link)
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
	return -1, errors.New("all ranges of IDs are in use")
}

// abandoned reports whether a range belongs to a sandbox that no longer exists.
func (e *Engine) abandoned(link string) bool {
	holder, err := os.Readlink(link)
	if err != nil {
		return false
	}
	if !strings.Contains(holder, "/") {
		holder = "jail/" + holder
	}
	_, err = os.Lstat(filepath.Join(e.state, holder))
	return errors.Is(err, fs.ErrNotExist)
}

// freeSlots releases the ranges of a sandbox.
func (e *Engine) freeSlots(rec record) error {
	names := []string{strconv.Itoa(rec.Slot)}
	if rec.Init.PID == 0 {
		// An interrupted creation may have reserved a range that no record names.
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
		if holder, err := os.Readlink(link); err == nil && holder == e.holder(rec.ID) {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

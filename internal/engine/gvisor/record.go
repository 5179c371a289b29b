package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/host/durable"
)

// record describes a sandbox, and is stored in its directory. The first version is written before
// anything is made, so that a crash at any step leaves enough to find and free the rest.
type record struct {
	ID      string        `json:"id"`
	Kernel  string        `json:"kernel"` // what gVisor calls it
	Created time.Time     `json:"created"`
	Creator process       `json:"creator"`
	Limits  engine.Limits `json:"limits"`
	// Spec is what the sandbox was made from, except its guest's configuration.
	Spec   *engine.Spec  `json:"spec,omitempty"`
	Group  *cgroup.Group `json:"group,omitempty"`
	Sentry process       `json:"sentry"`
	Gofer  process       `json:"gofer"`
	Socket string        `json:"socket"` // gVisor's control socket
	Exit   *engine.Exit  `json:"exit,omitempty"`
}

const recordName = "box.json"

// unreadable reports whether a record could not be read, as opposed to being absent or incomplete.
// Nothing follows from that error, in particular not that the files are no longer needed.
func unreadable(err error) bool {
	_, failed := errors.AsType[*fs.PathError](err)
	return failed && !errors.Is(err, fs.ErrNotExist)
}

func readRecord(dir string) (record, error) {
	var rec record
	data, err := os.ReadFile(filepath.Join(dir, recordName))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, fmt.Errorf("record: %w", err)
	}
	if rec.Kernel == "" {
		rec.Kernel = rec.ID // written before kernels had names of their own
	}
	return rec, nil
}

// write replaces the record in one step, so that a reader or a crash never
// sees half of one.
func (r record) write(dir string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if err := durable.Replace(filepath.Join(dir, recordName), data, durable.Options{Draft: recordName + ".*"}); err != nil {
		return fmt.Errorf("record: %w", err)
	}
	return nil
}

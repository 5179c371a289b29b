package microvm

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// record describes a sandbox and is stored in its directory. It is first written before anything
// else is created. After a crash at any step, the record is enough to find and free the rest.
type record struct {
	ID string `json:"id"`
	// Name is part of the names of the sandbox's group and processes. It is the ID, unless the
	// sandbox replaced another one.
	Name    string          `json:"name,omitempty"`
	Machine description     `json:"machine,omitzero"`
	Created time.Time       `json:"created"`
	Limits  engine.Limits   `json:"limits"`
	Group   *cgroup.Group   `json:"group,omitempty"`
	Keeper  process.Process `json:"keeper"`
	Exit    *engine.Exit    `json:"exit,omitempty"`
}

func readRecord(dir string) (rec record, err error) {
	err = sandboxdir.Read(dir, &rec)
	if rec.Name == "" {
		rec.Name = rec.ID
	}
	return rec, err
}

func (r record) write(dir string) error { return sandboxdir.Write(dir, r) }

// groupName is the name of a sandbox's control groups.
func groupName(name string) string { return Name + "-" + name }

// Files in a sandbox's directory.
const (
	exitName    = "exit"      // a keeper.Exit, once the machine has ended
	processName = "machine"   // the process that runs the machine
	ownName     = "own.erofs" // the disk with the workspace and the mounts
)

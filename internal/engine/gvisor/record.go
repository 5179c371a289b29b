package gvisor

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// record describes a sandbox and is stored in its directory. It is written before other resources
// are created. After a crash at any step, it is enough to find and free them.
type record struct {
	ID      string          `json:"id"`
	Kernel  string          `json:"kernel"` // gVisor's name of the sandbox
	Created time.Time       `json:"created"`
	Creator process.Process `json:"creator"`
	Limits  engine.Limits   `json:"limits"`
	// Spec is the specification of the sandbox, without its guest's configuration.
	Spec   *engine.Spec    `json:"spec,omitempty"`
	Group  *cgroup.Group   `json:"group,omitempty"`
	Sentry process.Process `json:"sentry"`
	Gofer  process.Process `json:"gofer"`
	Socket string          `json:"socket"` // gVisor's control socket
	Exit   *engine.Exit    `json:"exit,omitempty"`
}

// readRecord reads the record in a sandbox's directory.
func readRecord(dir string) (rec record, err error) {
	if err := sandboxdir.Read(dir, &rec); err != nil {
		return rec, err
	}
	if rec.Kernel == "" {
		rec.Kernel = rec.ID // in records of versions without separate kernel names
	}
	return rec, nil
}

// write stores the record in a sandbox's directory.
func (r record) write(dir string) error { return sandboxdir.Write(dir, r) }

package gvisor

import (
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/process"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
)

// record describes a sandbox and is stored in its directory. The first version is written before
// anything else is created. After a crash at any step, it is enough to find and free the rest.
type record struct {
	ID      string          `json:"id"`
	Kernel  string          `json:"kernel"` // gVisor's name of the sandbox
	Created time.Time       `json:"created"`
	Creator process.Process `json:"creator"`
	Limits  engine.Limits   `json:"limits"`
	// Spec is what the sandbox was created from, without its guest's configuration.
	Spec   *engine.Spec    `json:"spec,omitempty"`
	Group  *cgroup.Group   `json:"group,omitempty"`
	Sentry process.Process `json:"sentry"`
	Gofer  process.Process `json:"gofer"`
	Socket string          `json:"socket"` // gVisor's control socket
	Exit   *engine.Exit    `json:"exit,omitempty"`
}

func readRecord(dir string) (rec record, err error) {
	if err := sandboxdir.Read(dir, &rec); err != nil {
		return rec, err
	}
	if rec.Kernel == "" {
		rec.Kernel = rec.ID // written before kernels had separate names
	}
	return rec, nil
}

func (r record) write(dir string) error { return sandboxdir.Write(dir, r) }

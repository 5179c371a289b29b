// Package microvm owns the engine that isolates with virtual machines: each sandbox has a kernel of
// its own, in a machine that QEMU runs with the processor's virtualization.
package microvm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/engine/microvm/vmm"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Name is the engine's name, and that of its directory in the state directory.
const Name = "microvm"

// Images finds the files of images.
type Images interface {
	// ImageView returns the unpacked files of an image, with the guest's program in them.
	ImageView(ctx context.Context, image engine.OCI) (engine.HostView, error)
}

// Options configure the engine.
type Options struct {
	// StateDir is the server's state directory. The engine stores everything below microvm/ in it.
	StateDir string
	Log      *slog.Logger
	// Guest is the path of the guest's static program on this host. It is the first process of each
	// machine.
	Guest string
	// Kernel is the kernel of the machines: a file, or a directory with kernels. "" is the newest
	// in /boot.
	Kernel string
	// Emulate runs the machines without the processor's virtualization. Such a machine is no
	// boundary, because QEMU's developers do not treat holes in its emulation as security bugs. It
	// is for tests.
	Emulate bool
	// StartTime bounds how long a machine may take to start its guest; it only ends a hang. Zero
	// stands for a default.
	StartTime time.Duration
	// NoCgroups makes the engine run without control groups, as on a host without writable ones.
	NoCgroups bool
	// Images finds the images from which sandboxes start. It may be nil.
	Images Images
}

// Engine runs sandboxes in virtual machines. It is safe for concurrent use.
type Engine struct {
	o        Options
	dir      string // StateDir/microvm
	log      *slog.Logger
	qemu     vmm.QEMU
	groups   *cgroup.Tree // nil if groups cannot be created
	noGroups error        // why groups cannot be created
	making   singleflight.Group
	format   func() string // see Format

	sandboxes lifetime.Table[*instance]
}

var (
	_ engine.Engine       = (*Engine)(nil)
	_ engine.Meter        = (*Engine)(nil)
	_ engine.Checkpointer = (*Engine)(nil)
)

// New opens the engine on a state directory, which several processes may share. It does not look
// for QEMU, for the kernel or for the processor's virtualization. If one is missing, Probe reports
// it, and Create fails. The returned engine is a Freezer if control groups can be frozen here.
func New(o Options) (engine.Engine, error) {
	if !reexec.Dispatched() {
		return nil, engine.NotDispatched("the engine microvm starts this program again as the keeper of a machine")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{o: o, dir: filepath.Join(o.StateDir, Name), log: o.Log, qemu: vmm.QEMU{TSC: vmm.HostTSC()}}
	e.sandboxes = lifetime.Table[*instance]{
		Engine: Name, Dir: e.dir, Log: e.log, Load: e.load, Hint: "crannog doctor lists what the engine microvm lacks here",
	}
	for _, dir := range []string{e.dir, e.imagesDir(), e.bootDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("microvm: %w", err)
		}
	}
	e.format = sync.OnceValue(e.findFormat)
	if o.NoCgroups {
		e.noGroups = errors.New("disabled by an option")
	} else {
		e.groups, e.noGroups = cgroup.Detect()
	}
	e.removeReplaced()
	if e.groups.Freezes() {
		return freezing{e}, nil
	}
	return e, nil
}

// freezing is an Engine on a host whose control groups can be frozen.
type freezing struct{ *Engine }

// Info implements engine.Engine.
func (f freezing) Info() engine.Info {
	info := f.Engine.Info()
	info.Capabilities = engine.Implemented(f)
	return info
}

// Info implements engine.Engine.
func (e *Engine) Info() engine.Info {
	info := engine.Info{
		Name: Name, Version: "1", Boundary: engine.OwnKernel,
		Enforces:   []engine.Limit{engine.LimitMemory, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm},
		Shows:      []engine.Limit{engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm},
		OwnNetwork: true, OwnFiles: true, DiskInMemory: true,
		// A sandbox costs more time and memory than on other engines, so only requests select this
		// one.
		OnRequest:    true,
		Capabilities: engine.Implemented(e),
		Images:       []engine.ImageKind{engine.ImageOCI},
		Egress:       []engine.EgressKind{engine.EgressNone, engine.EgressEthernet},
		Notes: []string{
			"files that a sandbox writes are in its memory, so at most three quarters of the memory limit can be disk",
			"the workspace and mounts are copied when a sandbox is created",
			"a sandbox that exceeds its memory limit ends as a whole",
			"a sandbox that continues from saved memory keeps the amount of memory that it was saved with, and its monotonic clock stands still while it is saved",
		},
	}
	if slices.Contains(e.groups.Enforces(), engine.LimitCPU) {
		info.Enforces = append(info.Enforces, engine.LimitCPU)
	} else {
		info.Notes = append(info.Notes, fmt.Sprintf("no writable cgroup (%v): processor time is not limited, and a sandbox cannot be paused in memory", e.noGroups))
	}
	if e.o.Emulate {
		info.Boundary = engine.NoBoundary
		info.Notes = append(info.Notes, "microvm_emulation is insecure-for-tests: machines are emulated, which is slow and no boundary")
	}
	return info
}

// imagesDir is the directory with the disks of images.
func (e *Engine) imagesDir() string { return filepath.Join(e.dir, ".images") }

// bootDir is the directory with the files from which machines boot.
func (e *Engine) bootDir() string { return filepath.Join(e.dir, ".boot") }

// instanceDir returns the directory of a sandbox.
func (e *Engine) instanceDir(id string) string { return filepath.Join(e.dir, id) }

// load makes a handle of a sandbox from its record.
func (e *Engine) load(id string) (*instance, error) {
	rec, err := readRecord(e.instanceDir(id))
	if rec.ID != id {
		rec = record{ID: id, Name: id} // the creation was interrupted before it wrote a record
	}
	return newInstance(e, rec, e.instanceDir(id)), err
}

// List implements engine.Engine.
func (e *Engine) List(ctx context.Context) ([]engine.Status, error) {
	return e.sandboxes.List(ctx, func(dir string) (time.Time, bool, error) {
		rec, err := readRecord(dir)
		return rec.Created, err == nil && rec.Keeper.Alive(), err
	})
}

// Package gvisor owns the engine that isolates sandboxes with a user-space kernel. It starts gVisor
// by re-executing this binary, finds its sandboxes again after a restart, and controls them through
// their control sockets. No other package uses gVisor.
package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/runsc/version"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Options configure the engine.
type Options struct {
	// StateDir is the server's state directory. The engine stores everything below run/ in it.
	StateDir string
	Log      *slog.Logger
	// Runtime is a program that has only the engine's Roles, and therefore starts faster. If
	// Runtime is "", the engine starts this program again.
	Runtime string
	// NoCgroups makes the engine run without control groups, as on a host where none is writable.
	NoCgroups bool
}

// Engine runs sandboxes on gVisor. It implements engine.Engine and engine.Meter.
type Engine struct {
	dir      string // StateDir/run
	runtime  string // the program with the engine's Roles
	log      *slog.Logger
	rootless bool
	groups   *cgroup.Tree // nil if groups cannot be created
	noGroups error        // why groups cannot be created

	mu        sync.Mutex
	instances map[string]*instance
	spares    prestarted

	balance cgroup.Balance
}

var (
	_ engine.Engine       = (*Engine)(nil)
	_ engine.Meter        = (*Engine)(nil)
	_ engine.Freezer      = (*Engine)(nil)
	_ engine.Checkpointer = (*Engine)(nil)
	_ engine.Archiver     = (*Engine)(nil)
	_ engine.Warmer       = (*Engine)(nil)
	_ engine.Observer     = (*Engine)(nil)
)

// silenceLog makes New discard gVisor's log once.
var silenceLog sync.Once

// New opens the engine on a state directory, which several processes may share.
func New(o Options) (*Engine, error) {
	if !reexec.Dispatched() {
		return nil, engine.NotDispatched("gVisor runs as a second process of the same program")
	}
	// gVisor's client code logs to standard error, which belongs to the program that links this
	// package. All important messages are returned as errors.
	silenceLog.Do(func() { log.SetTarget(log.GoogleEmitter{Writer: &log.Writer{Next: io.Discard}}) })
	e := &Engine{
		dir:       filepath.Join(o.StateDir, "run"),
		runtime:   runtimeProgram(o),
		log:       o.Log,
		rootless:  os.Geteuid() != 0,
		instances: map[string]*instance{},
	}
	for _, dir := range []string{e.runtimeRoot(), e.rootPoint()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("gvisor: %w", err)
		}
	}
	if o.NoCgroups {
		e.noGroups = errors.New("disabled by an option")
	} else {
		e.groups, e.noGroups = cgroup.Detect()
	}
	return e, nil
}

// Info implements engine.Engine.
func (e *Engine) Info() engine.Info {
	info := engine.Info{
		Name:     "gvisor",
		Version:  runtimeVersion(),
		Boundary: engine.UserspaceKernel,
		Enforces: append(e.groups.Enforces(), engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm),
		// The sandbox has its own kernel, which shows the limits as its sizes.
		Shows:      []engine.Limit{engine.LimitMemory, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm},
		OwnNetwork: true,
		OwnFiles:   true,
		OwnRoot:    true,
		// Without root, gVisor cannot give a new file to the sandbox's user.
		Volumes:        !e.rootless,
		Containers:     true,
		TakesWorkspace: true,
		Capabilities:   engine.Implemented(e),
		Images:         slices.Clone(imageKinds),
		Egress:         slices.Clone(egressKinds),
	}
	if e.groups == nil {
		info.Enforces = append(info.Enforces, engine.LimitMemory, engine.LimitCPU)
		info.Notes = append(info.Notes, fmt.Sprintf(
			"no writable cgroup (%v): memory is limited by a watcher that ends a sandbox above its limit, and CPU to whole processors", e.noGroups))
	}
	if linkedWithC && e.runtime == thisProgram {
		info.Notes = append(info.Notes, "built with cgo: gVisor's own system call filter allows a few more calls; build with make, or with CGO_ENABLED=0")
	}
	if e.rootless {
		info.Notes = append(info.Notes, "runs in a user namespace of this user: files of other users are shown with the overflow user as owner")
	}
	return info
}

// thisProgram is this program, which has the engine's Roles too.
const thisProgram = "/proc/self/exe"

// runtimeProgram returns the program of the options, or this program if that cannot be executed,
// for example because its file system is mounted with noexec.
func runtimeProgram(o Options) string {
	if o.Runtime == "" {
		return thisProgram
	}
	if err := unix.Access(o.Runtime, unix.X_OK); err != nil {
		o.Log.Warn("cannot start the program for gVisor; using this program instead", "path", o.Runtime, "err", err)
		return thisProgram
	}
	return o.Runtime
}

// runtimeVersion returns gVisor's version. If the linker did not set it, the version of the linked
// module is used.
func runtimeVersion() string {
	const module = "gvisor.dev/gvisor"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return version.Version()
}

// instanceDir returns the directory of a sandbox.
func (e *Engine) instanceDir(id string) string { return filepath.Join(e.dir, id) }

// runtimeRoot returns gVisor's own state directory, one for all sandboxes. The dot distinguishes it
// from the sandboxes' directories.
func (e *Engine) runtimeRoot() string { return filepath.Join(e.dir, ".runsc") }

// rootPoint returns an empty directory. The child that creates a sandbox mounts the sandbox's root
// on it in its own mount namespace.
func (e *Engine) rootPoint() string { return filepath.Join(e.dir, ".root") }

// find returns the handle of a sandbox that this or an earlier process created.
func (e *Engine) find(id string) (*instance, error) {
	e.mu.Lock()
	known := e.instances[id]
	e.mu.Unlock()
	if known != nil && !known.over() {
		return known, nil
	}
	rec, err := readRecord(e.instanceDir(id))
	switch {
	case known != nil && (err != nil || rec.Sentry == known.rec.Sentry):
		return known, nil // no newer sandbox has this ID
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault.Newf(fault.NotFound, "sandbox_not_found", "no sandbox %q", id)
	case err != nil:
		return nil, fmt.Errorf("gvisor: sandbox %s: %w", id, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if current := e.instances[id]; current != nil && current != known {
		return current, nil
	}
	b := newInstance(e, rec, e.instanceDir(id))
	e.instances[id] = b
	e.balance.Add(rec.Group)
	return b, nil
}

// List implements engine.Engine.
func (e *Engine) List(ctx context.Context) ([]engine.Status, error) {
	e.removePrestarted()
	list, err := sandboxdir.List(ctx, e.dir, func(dir string) (time.Time, bool, error) {
		rec, err := readRecord(dir)
		return rec.Created, err == nil && rec.Sentry.Alive(), err
	})
	if err != nil {
		return nil, fmt.Errorf("gvisor: list: %w", err)
	}
	return list, nil
}

// Usage implements engine.Meter.
func (e *Engine) Usage(_ context.Context, id string) (engine.Usage, error) {
	b, err := e.find(id)
	if err != nil {
		return engine.Usage{}, err
	}
	return b.usage(), nil
}

// Bounds implements engine.Meter.
func (e *Engine) Bounds(_ context.Context, id string) (engine.Limits, error) {
	b, err := e.find(id)
	if err != nil {
		return engine.Limits{}, err
	}
	return b.bounds(), nil
}

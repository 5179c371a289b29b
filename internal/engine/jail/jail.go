// Package jail owns the engine that isolates with what the host's kernel has: namespaces, control
// groups, seccomp and Landlock. Its sandboxes share the host's kernel, start faster than all
// others, and are for trusted code that may make mistakes.
package jail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/sandboxdir"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/ids"
)

// Options configure the engine.
type Options struct {
	// StateDir is the server's state directory; the engine keeps everything below
	// jail/ in it.
	StateDir string
	Log      *slog.Logger
	// NoCgroups leaves control groups alone, as on a host where they cannot be written.
	NoCgroups bool
	// Variant makes an engine of another name. Nil is the engine jail.
	Variant *Variant
}

// Engine runs sandboxes as processes of the host.
type Engine struct {
	state    string
	dir      string // the engine's own directory in state
	variant  *Variant
	log      *slog.Logger
	rootless bool
	groups   *cgroup.Tree // nil if groups cannot be made
	noGroups error        // why groups cannot be made
	tap      bool         // /dev/net/tun can be opened

	mu    sync.Mutex
	boxes map[string]*instance
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Meter    = (*Engine)(nil)
	_ engine.Archiver = (*Engine)(nil)
)

var (
	imageKinds = []engine.ImageKind{engine.ImageHostView}
	// withTap are the kinds of egress where network interfaces can be made.
	withTap = []engine.EgressKind{engine.EgressNone, engine.EgressTap}
)

// notes are those of every host.
var notes = []string{
	"shares the host's kernel: a hole in it is a way out, so it is for code that was reviewed",
	"files that a sandbox writes are in its memory, so at most three quarters of the memory limit can be disk",
	"files of a workspace that belong neither to its owner nor to root cannot be changed inside; directories of the host are moved by copying",
}

// New opens the engine on a state directory, which it shares with other processes that do the same.
// The returned engine can freeze sandboxes where control groups can.
func New(o Options) (engine.Engine, error) {
	if !reexec.Dispatched() {
		return nil, fault.New(fault.Internal, "reexec_missing", "this program did not call crannog.Main at the start of main").
			WithHint("the jail's first process is a second process of the same program; call crannog.Main() first")
	}
	e := &Engine{state: o.StateDir, variant: o.Variant, log: o.Log, rootless: os.Geteuid() != 0, boxes: map[string]*instance{}}
	e.dir = filepath.Join(e.state, e.name())
	for _, dir := range []string{e.dir, e.slots()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name(), err)
		}
	}
	e.tap = unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) == nil
	if o.NoCgroups {
		e.noGroups = errors.New("switched off by the caller")
	} else {
		e.groups, e.noGroups = cgroup.Detect()
	}
	if e.groups.Freezes() {
		return freezing{e}, nil
	}
	return e, nil
}

// freezing is an Engine on a host whose control groups stop processes.
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
		Name:     "jail",
		Version:  "1",
		Boundary: engine.SharedKernel,
		// The size of /dev/shm, of the disk and the number of files are those of file
		// systems of the sandbox's own, and the number of processes is a limit of its
		// users. So these hold without control groups.
		Enforces:     append(e.groups.Enforces(), engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm),
		Shows:        []engine.Limit{engine.LimitMemory, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm},
		OwnNetwork:   true,
		OwnFiles:     true,
		DiskInMemory: true,
		Capabilities: engine.Implemented(e),
		Images:       slices.Clone(imageKinds),
		Egress:       slices.Clone(e.egressKinds()),
		Notes:        slices.Clone(notes),
	}
	if e.variant != nil {
		e.variant.declare(&info)
	}
	if e.groups == nil {
		info.Notes = append(info.Notes, fmt.Sprintf("no writable cgroup (%v): memory and CPU are not bounded, and a sandbox cannot be paused in memory", e.noGroups))
	}
	if e.rootless {
		info.Notes = append(info.Notes, "runs as one user: there is no root inside, all files of an image belong to the sandbox's user, and commands have the ID of the guest, which the kernel protects from them")
	}
	if !e.tap && e.variant == nil {
		info.Notes = append(info.Notes, "/dev/net/tun cannot be opened: sandboxes have no network")
	}
	return info
}

func (e *Engine) egressKinds() []engine.EgressKind {
	if e.tap && e.variant == nil {
		return withTap
	}
	return withTap[:1]
}

// instanceDir is where a sandbox's own files are.
func (e *Engine) instanceDir(id string) string { return filepath.Join(e.dir, id) }

// find returns the handle of a sandbox that this or an earlier process made.
func (e *Engine) find(id string) (*instance, error) {
	e.mu.Lock()
	known := e.boxes[id]
	e.mu.Unlock()
	if known != nil && !known.over() {
		return known, nil
	}
	rec, err := readRecord(e.instanceDir(id))
	switch {
	case known != nil && (err != nil || rec.Init == known.rec.Init):
		return known, nil // no newer sandbox has this ID
	case errors.Is(err, fs.ErrNotExist) || !ids.ValidSandbox(id):
		return nil, fault.Newf(fault.NotFound, "sandbox_not_found", "no sandbox %q", id)
	case err != nil:
		return nil, fmt.Errorf("%s: sandbox %s: %w", e.name(), id, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := e.boxes[id]; now != nil && now != known {
		return now, nil
	}
	b := newInstance(e, rec)
	if err := b.recover(); err != nil {
		return nil, err
	}
	e.boxes[id] = b
	return b, nil
}

// List implements engine.Engine.
func (e *Engine) List(ctx context.Context) ([]engine.Status, error) {
	var stuck error // a sandbox that stands still for a reader that has died
	list, err := sandboxdir.List(ctx, e.dir, func(dir string) (time.Time, bool, error) {
		rec, err := readRecord(dir)
		running := err == nil && rec.Init.Alive()
		if running {
			stuck = errors.Join(stuck, newInstance(e, rec).recover())
		}
		return rec.Created, running, err
	})
	if err = errors.Join(err, stuck); err != nil {
		return nil, fmt.Errorf("%s: list: %w", e.name(), err)
	}
	return list, nil
}

// processors is how many of the host's processors a sandbox is shown.
func processors(limits engine.Limits) int {
	return int(min(max((limits.MilliCPU+999)/1000, 1), int64(runtime.NumCPU())))
}

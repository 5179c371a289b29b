// Package jail owns the engine that isolates sandboxes with features of the host's kernel:
// namespaces, control groups, seccomp and Landlock. Its sandboxes share the host's kernel and start
// faster than those of other engines. They are meant for trusted code that may have bugs.
package jail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/cgroup"
	"github.com/crannog/crannog/internal/engine/linux/kernelevents"
	"github.com/crannog/crannog/internal/engine/linux/lifetime"
	"github.com/crannog/crannog/internal/host/reexec"
)

// Options configure the engine.
type Options struct {
	// StateDir is the server's state directory. The engine stores everything below jail/ in it.
	StateDir string
	Log      *slog.Logger
	// NoCgroups makes the engine run without control groups, as on a host without writable ones.
	NoCgroups bool
	// NoDevice makes the engine connect sandboxes by a proxy, as on a host without /dev/net/tun.
	NoDevice bool
	// NoEvents makes the engine observe no programs, as on a host whose kernel cannot be asked.
	NoEvents bool
	// Variant makes an engine with another name. Nil is the engine jail.
	Variant *Variant
}

// Engine runs sandboxes as processes of the host.
type Engine struct {
	state    string
	dir      string // the engine's own directory in state
	variant  *Variant
	log      *slog.Logger
	rootless bool
	groups   *cgroup.Tree // nil if groups cannot be created
	noGroups error        // why groups cannot be created
	tap      bool         // network interfaces can be created
	blind    error        // why programs cannot be observed; nil if they can

	sandboxes lifetime.Table[*instance]
}

var (
	_ engine.Engine   = (*Engine)(nil)
	_ engine.Meter    = (*Engine)(nil)
	_ engine.Archiver = (*Engine)(nil)
)

var (
	imageKinds = []engine.ImageKind{engine.ImageHostView}
	noEgress   = []engine.EgressKind{engine.EgressNone}
	// withTap lists the kinds of egress if network interfaces can be created, and withProxy those
	// otherwise.
	withTap   = []engine.EgressKind{engine.EgressNone, engine.EgressTap}
	withProxy = []engine.EgressKind{engine.EgressNone, engine.EgressProxy}
)

// notes apply to every host.
var notes = []string{
	"shares the host's kernel, so a bug of that kernel can break the isolation: use it for reviewed code only",
	"files that a sandbox writes are in its memory, and may use at most three quarters of the memory limit",
	"files of a workspace that belong neither to its owner nor to root cannot be changed in the sandbox; directories of the host are moved by copying",
}

// New opens the engine on a state directory, which several processes may share. The returned engine
// is a Freezer if control groups can be frozen here.
func New(o Options) (engine.Engine, error) {
	if !reexec.Dispatched() {
		return nil, engine.NotDispatched("the engine jail starts this program again as the first process of a sandbox")
	}
	e := &Engine{state: o.StateDir, variant: o.Variant, log: o.Log, rootless: os.Geteuid() != 0}
	e.dir = filepath.Join(e.state, e.name())
	e.sandboxes = lifetime.Table[*instance]{Engine: e.name(), Dir: e.dir, Log: e.log, Load: e.load, Adopt: (*instance).adopt}
	for _, dir := range []string{e.dir, e.slots()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name(), err)
		}
	}
	e.tap = !o.NoDevice && unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) == nil
	if o.NoCgroups {
		e.noGroups = errors.New("disabled by an option")
	} else {
		e.groups, e.noGroups = cgroup.Detect()
	}
	e.blind = e.checkObserver(o)
	switch freezes := e.groups.Freezes(); {
	case freezes && e.blind == nil:
		return freezingObserver{freezing{e}, observer{e}}, nil
	case freezes:
		return freezing{e}, nil
	case e.blind == nil:
		return observer{e}, nil
	}
	return e, nil
}

// checkObserver returns why this process cannot observe programs of a sandbox.
func (e *Engine) checkObserver(o Options) error {
	switch {
	case e.variant != nil:
		return errors.New("its programs are modules")
	case o.NoEvents:
		return errors.New("disabled by an option")
	case e.rootless:
		return errors.New("not root")
	}
	return kernelevents.Available()
}

// observer is an Engine on a host whose kernel can be observed.
type observer struct{ *Engine }

// Survey implements engine.Observer.
func (o observer) Survey(ctx context.Context, id string) error { return o.survey(ctx, id) }

// Info implements engine.Engine.
func (o observer) Info() engine.Info {
	info := o.Engine.Info()
	info.Capabilities = engine.Implemented(o)
	return info
}

// freezingObserver is an Engine that is both.
type freezingObserver struct {
	freezing
	surveyor
}

// surveyor has only the method that an Observer adds.
type surveyor interface {
	Survey(ctx context.Context, id string) error
}

// Info implements engine.Engine.
func (f freezingObserver) Info() engine.Info {
	info := f.freezing.Info()
	info.Capabilities = engine.Implemented(f)
	return info
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
		Name:     "jail",
		Version:  "1",
		Boundary: engine.SharedKernel,
		// The size of /dev/shm and of the disk and the number of files are properties of the
		// sandbox's own file systems, and the number of processes is a limit of its users. These
		// limits hold without control groups.
		Enforces:     append(e.groups.Enforces(), engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm),
		Shows:        []engine.Limit{engine.LimitMemory, engine.LimitPIDs, engine.LimitDisk, engine.LimitInodes, engine.LimitShm},
		OwnNetwork:   true,
		OwnFiles:     true,
		DiskInMemory: true,
		Volumes:      true,
		Capabilities: engine.Implemented(e),
		Images:       slices.Clone(imageKinds),
		Egress:       slices.Clone(e.egressKinds()),
		Notes:        slices.Clone(notes),
	}
	if e.variant != nil {
		e.variant.declare(&info)
	}
	switch {
	case e.variant != nil:
	case e.blind != nil:
		info.Unseen = []string{fmt.Sprintf("programs and changed files are not recorded in the audit log (%v)", e.blind)}
	default:
		info.Unseen = slices.Clone(unseen)
	}
	info.Notes = append(info.Notes, info.Unseen...)
	if e.groups == nil {
		info.Notes = append(info.Notes, fmt.Sprintf("no writable cgroup (%v): memory and CPU are not limited, and a sandbox cannot be frozen", e.noGroups))
	}
	if e.rootless {
		info.Notes = append(info.Notes, "runs as one user: a sandbox has no root, all files of an image belong to the sandbox's user, and commands have the user ID of the guest, which the kernel protects from them")
	}
	if !e.tap && e.variant == nil {
		info.Notes = append(info.Notes, "no network interface can be created: programs reach the network only through the proxy that HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name")
	}
	return info
}

func (e *Engine) egressKinds() []engine.EgressKind {
	switch {
	case e.variant != nil:
		return e.variant.egressKinds()
	case e.tap:
		return withTap
	}
	return withProxy
}

// instanceDir returns the directory of a sandbox.
func (e *Engine) instanceDir(id string) string { return filepath.Join(e.dir, id) }

// load makes a handle of a sandbox from its record.
func (e *Engine) load(id string) (*instance, error) {
	rec, err := readRecord(e.instanceDir(id))
	if rec.ID != id {
		// There is no record, because the creation was interrupted before it wrote one.
		rec = record{ID: id, Slot: -1}
	}
	return newInstance(e, rec), err
}

// List implements engine.Engine.
func (e *Engine) List(ctx context.Context) ([]engine.Status, error) {
	var stuck error // a sandbox that stays frozen although its reader has died
	list, err := e.sandboxes.List(ctx, func(dir string) (time.Time, bool, error) {
		rec, err := readRecord(dir)
		running := err == nil && rec.Init.Alive()
		if running {
			stuck = errors.Join(stuck, newInstance(e, rec).recover())
		}
		return rec.Created, running, err
	})
	if err == nil && stuck != nil {
		err = fmt.Errorf("%s: list: %w", e.name(), stuck)
	}
	return list, err
}

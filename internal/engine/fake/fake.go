// Package fake owns an engine without isolation for tests of its callers. It implements the
// contract, serves guests in this process, and fails on demand. It must never run programs that do
// not come from a test.
package fake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
)

// Step is a point at which Create or Remove can be made to fail.
type Step string

const (
	CreateBegin Step = "create-begin" // nothing has been done
	CreateDir   Step = "create-dir"   // the directory exists
	CreateServe Step = "create-serve" // the guest is served
	CreateReady Step = "create-ready" // the guest has answered
	RemoveBegin Step = "remove-begin" // nothing has been done
	RemoveStop  Step = "remove-stop"  // the guest is stopped, the directory exists
	RemoveDir   Step = "remove-dir"   // nothing is left
)

// Steps lists all steps in order.
var Steps = []Step{CreateBegin, CreateDir, CreateServe, CreateReady, RemoveBegin, RemoveStop, RemoveDir}

// Guest returns the handlers of a sandbox by port, and a function that ends them.
type Guest func(spec engine.Spec) (ports map[int]http.Handler, end func(), err error)

// Options configure an Engine.
type Options struct {
	// Name and Boundary are returned by Info, for tests with several engines in one process. The
	// defaults are "fake" and no boundary.
	Name     string
	Boundary engine.Boundary
	// Dir contains a directory per sandbox. Engines of one directory in one process have the same
	// sandboxes, as if the process had restarted.
	Dir string
	// Guest creates the guest of a sandbox. Nil serves only the control service.
	Guest Guest
	// Fault, if set, is called at each step. If it returns an error, the step fails.
	Fault func(step Step, id string) error
	// Enforces is returned by Info, for tests of its callers.
	Enforces []engine.Limit
	// Shows is returned by Info too. Ignores lists limits of Enforces that the fake does not
	// enforce.
	Shows, Ignores []engine.Limit
	// Containers is returned by Info.
	Containers bool
	// OnHost makes Info report that sandboxes use the host's network and files.
	OnHost bool
	// Format is the format of saved states. The default is "fake/1".
	Format string

	programs bool // set by NewPrograms
}

// Engine is the fake. It is safe for concurrent use.
type Engine struct {
	options Options
	shared  *sharedState
}

var (
	_ engine.Engine = (*Engine)(nil)
	_ engine.Meter  = (*Engine)(nil)
)

// sharedState is the state that outlives an Engine: the sandboxes of one directory.
type sharedState struct {
	mu        sync.Mutex
	instances map[string]*instance
}

// sharedStates holds the state of each directory. It stands for the kernel, in which sandboxes
// survive a restart of their server.
var sharedStates = struct {
	mu    sync.Mutex
	byDir map[string]*sharedState
}{byDir: make(map[string]*sharedState)}

// New opens an engine on a directory, which it creates if necessary.
func New(o Options) (*Engine, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, errors.Join(errors.New("fake engine: no directory"), err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("fake engine: %w", err)
	}
	o.Dir = dir
	if o.Guest == nil {
		o.Guest = controlOnly
	}
	if o.Fault == nil {
		o.Fault = func(Step, string) error { return nil }
	}
	sharedStates.mu.Lock()
	defer sharedStates.mu.Unlock()
	shared := sharedStates.byDir[dir]
	if shared == nil {
		shared = &sharedState{instances: make(map[string]*instance)}
		sharedStates.byDir[dir] = shared
	}
	return &Engine{options: o, shared: shared}, nil
}

// Close ends all sandboxes of the directory, as when the machine shuts down. Their files stay.
func (e *Engine) Close() {
	sharedStates.mu.Lock()
	delete(sharedStates.byDir, e.options.Dir)
	sharedStates.mu.Unlock()
	e.shared.mu.Lock()
	instances := slices.Collect(maps.Values(e.shared.instances))
	clear(e.shared.instances)
	e.shared.mu.Unlock()
	for _, b := range instances {
		b.stop(engine.Exit{Reason: engine.ReasonCrashed, At: time.Now()})
	}
}

// Info describes the engine.
func (e *Engine) Info() engine.Info {
	return engine.Info{
		Name: cmp.Or(e.options.Name, "fake"), Version: "1", Boundary: cmp.Or(e.options.Boundary, engine.NoBoundary),
		Notes: []string{"no isolation: for tests only"}, Enforces: e.options.Enforces, Shows: e.options.Shows,
		OwnNetwork: !e.options.OnHost, OwnFiles: !e.options.OnHost,
		Containers:   e.options.Containers,
		Capabilities: engine.Implemented(e),
		Images:       []engine.ImageKind{engine.ImageHostView},
		Egress:       []engine.EgressKind{engine.EgressNone, engine.EgressPackets},
	}
}

// Probe reports every host as suitable.
func (e *Engine) Probe(context.Context) []engine.Finding {
	return []engine.Finding{engine.OK("fake", "runs everywhere")}
}

// idPattern matches valid sandbox IDs.
var idPattern = pattern.New(`^[a-z0-9]{1,40}$`)

// List returns running and stopped sandboxes. Directories of an earlier process are listed as
// stopped.
func (e *Engine) List(ctx context.Context) ([]engine.Status, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(e.options.Dir)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var out []engine.Status
	for _, entry := range entries {
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed after the directory was read
		}
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		status := engine.Status{ID: entry.Name(), State: engine.Stopped, Created: info.ModTime()}
		if b := e.find(entry.Name()); b != nil {
			status.Created = b.created
			if b.running() {
				status.State = engine.Running
			}
		}
		out = append(out, status)
	}
	return out, nil
}

// find returns a sandbox of this process, or nil.
func (e *Engine) find(id string) *instance {
	e.shared.mu.Lock()
	defer e.shared.mu.Unlock()
	return e.shared.instances[id]
}

// hasDirectory reports whether a sandbox has a directory.
func (e *Engine) hasDirectory(id string) bool {
	if !idPattern.MatchString(id) {
		return false
	}
	_, err := os.Lstat(e.dir(id))
	return err == nil
}

// dir returns the directory of a sandbox.
func (e *Engine) dir(id string) string { return filepath.Join(e.options.Dir, id) }

// unknown returns the fault for an ID without a sandbox.
func unknown(id string) error {
	return fault.Newf(fault.NotFound, "sandbox_not_found", "no sandbox %q", id)
}

// Residue counts the resources of the engines of a directory in this process.
func Residue(dir string) map[string]int {
	n := map[string]int{"sandboxes": 0, "ports": 0, "streams": 0, "loops": 0, "frozen": 0, "watched": 0}
	sharedStates.mu.Lock()
	shared := sharedStates.byDir[dir]
	sharedStates.mu.Unlock()
	if shared == nil {
		return n
	}
	shared.mu.Lock()
	instances := slices.Collect(maps.Values(shared.instances))
	shared.mu.Unlock()
	for _, b := range instances {
		n["sandboxes"]++
		for _, l := range b.ports {
			n["ports"]++
			l.mu.Lock()
			n["streams"] += len(l.open)
			l.mu.Unlock()
		}
		if b.frozen() {
			n["frozen"]++
		}
		b.one.Lock()
		n["loops"] += len(b.loops)
		if b.watch != nil {
			n["watched"]++
		}
		b.one.Unlock()
	}
	return n
}

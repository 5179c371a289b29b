// Package wasm owns the engine that runs WebAssembly modules with WASI preview 1. Its sandboxes are
// jails without a network interface. In them the guest starts only the runner (package runner),
// which drops most of the rights that the jail leaves.
package wasm

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/modules"
)

// Name is the engine's name.
const Name = "wasm"

// codeRunnerMissing is the code of the fault if this build has no runner.
const codeRunnerMissing = "runner_missing"

// codeDeterministicNetwork is the code of the fault for a deterministic sandbox with a network.
const codeDeterministicNetwork = "deterministic_network"

// Options configure the engine.
type Options struct {
	// StateDir is the server's state directory. The engine stores everything below wasm/ in it.
	StateDir string
	Log      *slog.Logger
	// Runner is the host's path of the program that runs modules, or "" if this build has none.
	Runner string
	// NoCgroups makes the engine run without control groups, as on a host without writable ones.
	NoCgroups bool
	// CacheBytes is the maximum size of all compiled modules. Zero is DefaultCacheBytes.
	CacheBytes int64
}

// Engine runs sandboxes whose programs are WebAssembly modules.
type Engine struct {
	engine.Engine // the jail
	engine.Meter
	runner string
}

// freezing is an Engine on a host whose control groups can be frozen.
type freezing struct {
	Engine
	engine.Freezer
}

var (
	_ engine.Engine  = Engine{}
	_ engine.Meter   = Engine{}
	_ engine.Freezer = freezing{}
)

// notes apply to every host.
var notes = []string{
	"runs WebAssembly modules for WASI preview 1 and no other programs; there are no terminals",
	"the code interpreter runs JavaScript (QuickJS on WebAssembly) and no other language",
	"the only network is HTTP: modules that import wasi_experimental_http make requests through the egress gateway; WASI preview 1 has no sockets",
	"instructions are not counted (no fuel): a module is limited by the CPU limit and the timeout of a command",
	"a module and the runtime share an address space, so a bug of the runtime's compiler gives a module the rights of the jail around both",
	"files that a sandbox writes are in its memory, and may use at most three quarters of the memory limit",
}

// New opens the engine on a state directory, which several processes may share. The returned engine
// is a Freezer if control groups can be frozen here.
func New(o Options) (engine.Engine, error) {
	log := o.Log
	compiled := newStore(filepath.Join(o.StateDir, Name, ".modules"), o.Runner, o.CacheBytes, log)
	jailed, err := jail.New(jail.Options{StateDir: o.StateDir, Log: log, NoCgroups: o.NoCgroups, Variant: &jail.Variant{
		Name: Name, Version: "1", Boundary: engine.WasmRuntime, Images: []engine.ImageKind{engine.ImageModule}, Proxy: true, Notes: notes,
		Arguments: arguments,
		Serve:     func(c *net.UnixConn) { compiled.serve(context.Background(), c) },
	}})
	if err != nil {
		return nil, err
	}
	meter, ok := jailed.(engine.Meter)
	if !ok {
		return nil, fmt.Errorf("wasm: the jail does not implement engine.Meter")
	}
	e := Engine{jailed, meter, o.Runner}
	if f, ok := jailed.(engine.Freezer); ok {
		return freezing{e, f}, nil
	}
	return e, nil
}

// arguments returns the guest's arguments for running modules.
func arguments(spec engine.Spec) ([]string, error) {
	r := spec.Image.View().Runner
	argument, err := modules.Config{Program: r.Path, JavaScript: r.JavaScript, Deterministic: r.Deterministic, MemoryBytes: spec.Limits.MemoryBytes}.Argument()
	return []string{argument}, err
}

// Info implements engine.Engine.
func (e Engine) Info() engine.Info {
	info := e.Engine.Info()
	info.Capabilities = engine.Implemented(e)
	return info
}

// Info implements engine.Engine.
func (f freezing) Info() engine.Info {
	info := f.Engine.Info()
	info.Capabilities = engine.Implemented(f)
	return info
}

// Create implements engine.Engine.
func (e Engine) Create(ctx context.Context, spec engine.Spec) error {
	if err := engine.Refusal([]engine.Finding{e.checkRunner()}); err != nil {
		return err
	}
	if r := spec.Image.View().Runner; r != nil && r.Deterministic && spec.Egress.Connected() {
		return fault.New(fault.Invalid, codeDeterministicNetwork, "a deterministic sandbox has no network: answers from outside would not be the same each time").
			WithHint("leave out --allow and the policy's network rules, or leave out --deterministic")
	}
	return e.Engine.Create(ctx, spec)
}

// Probe implements engine.Engine.
func (e Engine) Probe(ctx context.Context) []engine.Finding {
	findings := []engine.Finding{e.checkRunner()}
	for _, f := range e.Engine.Probe(ctx) {
		if f.Check != jail.CheckInterface { // sandboxes of this engine have no network
			findings = append(findings, f)
		}
	}
	return findings
}

// checkRunner checks that the runner exists.
func (e Engine) checkRunner() engine.Finding {
	const name = "runner"
	if e.runner == "" {
		f := engine.Fail(name, "this build of crannog does not contain the program that runs WebAssembly modules", "build crannog with make")
		f.Code = codeRunnerMissing
		return f
	}
	if _, err := os.Stat(e.runner); err != nil {
		f := engine.Fail(name, fault.PublicText(err), "start crannog again, which writes the program")
		f.Code = codeRunnerMissing
		return f
	}
	return engine.OK(name, "WebAssembly modules for WASI preview 1")
}

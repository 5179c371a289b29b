package v1

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// engineHandlers serves the engines that sandboxes can run on.
type engineHandlers struct {
	registry *engine.Registry
	probes   probes
}

func (h *engineHandlers) register(r *registry) {
	register(r, op("engine", "GET", "/engine", "Describe the default engine"), h.engine)
	register(r, op("engines", "GET", "/engines", "List the engines that sandboxes can run on"), h.engines)
}

type engineOutput struct{ Body api.Engine }

func (h *engineHandlers) engine(ctx context.Context, _ sandbox.Principal, _ *struct{}) (*engineOutput, error) {
	return &engineOutput{h.toEngine(ctx, h.registry.Default())}, nil
}

type enginesOutput struct{ Body api.EngineList }

func (h *engineHandlers) engines(ctx context.Context, _ sandbox.Principal, _ *struct{}) (*enginesOutput, error) {
	out := &enginesOutput{api.EngineList{Engines: []api.Engine{}}}
	for _, e := range h.registry.All() {
		out.Body.Engines = append(out.Body.Engines, h.toEngine(ctx, e))
	}
	return out, nil
}

func (h *engineHandlers) toEngine(ctx context.Context, e engine.Engine) api.Engine {
	// The probe comes first, because an engine that uses a service learns its version from it.
	refused := h.probes.refusal(ctx, e)
	info := e.Info()
	out := api.Engine{
		Name: info.Name, Version: info.Version, Boundary: string(info.Boundary), NeedsRoot: info.NeedsRoot,
		Default: info.Name == h.registry.Default().Info().Name, Available: true,
		Capabilities: []string{}, Enforces: []string{}, Images: []string{}, Notes: append([]string{}, info.Notes...),
		Defaults: toLimits(sandbox.Limits{Limits: engine.DefaultLimits}),
	}
	for _, c := range info.Capabilities {
		out.Capabilities = append(out.Capabilities, string(c))
	}
	for _, l := range info.Enforces {
		out.Enforces = append(out.Enforces, string(l))
	}
	for _, k := range startsFrom(info.Images) {
		out.Images = append(out.Images, string(k))
	}
	if refused != nil {
		out.Available, out.Reason, out.Fix = false, fault.PublicText(refused), fault.HintOf(refused)
	}
	return out
}

// startsFrom returns the kinds of images that a client may name. An OCI image is unpacked to
// directories, which an engine uses like those of the host.
func startsFrom(kinds []engine.ImageKind) []engine.ImageKind {
	if slices.Contains(kinds, engine.ImageHostView) && !slices.Contains(kinds, engine.ImageOCI) {
		return append(slices.Clone(kinds), engine.ImageOCI)
	}
	return kinds
}

// probeLife is how long the result of a probe is cached. A probe may start a process, and a client
// that lists the engines repeatedly must not start one each time.
const probeLife = 10 * time.Second

// probes keeps the latest result of each engine's Probe.
type probes struct {
	mu   sync.Mutex
	last map[string]probeResult
}

type probeResult struct {
	at      time.Time
	refusal error
}

// refusal returns why an engine cannot run on this host, or nil.
func (p *probes) refusal(ctx context.Context, e engine.Engine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := e.Info().Name
	if last, ok := p.last[name]; ok && time.Since(last.at) < probeLife {
		return last.refusal
	}
	if p.last == nil {
		p.last = make(map[string]probeResult)
	}
	// Other clients share the result, so it must not depend on this client's connection.
	current := probeResult{time.Now(), engine.Refusal(e.Probe(context.WithoutCancel(ctx)))}
	p.last[name] = current
	return current.refusal
}

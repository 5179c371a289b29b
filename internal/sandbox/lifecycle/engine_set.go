package lifecycle

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// engines holds the engines of this process, and the rules for choosing one.
type engines struct {
	*engine.Registry
	anyBoundary bool // accepts an engine without a boundary
}

// served reports whether the engine of a row is registered in this process. Sandboxes of other
// engines are listed and otherwise left alone: this process can neither see whether they run nor
// end them.
func (e engines) served(r sandbox.Row) bool { return e.Has(r.Engine) }

// checkServed refuses an operation on a sandbox whose engine is not registered. A stopped sandbox
// is only a row, which needs no engine.
func (e engines) checkServed(r sandbox.Row) error {
	if r.State == sandbox.Stopped {
		return nil
	}
	_, err := e.Of(r.Engine)
	return err
}

// choice returns the policy's requirement for the engine.
func (e engines) choice(p *policy.Policy) engine.Choice {
	return engine.Choice{Least: engine.Boundary(p.Document().Isolation.AtLeast), AnyBoundary: e.anyBoundary}
}

// chooseEngine returns the engine of a new sandbox. Saved memory is restored only by the engine
// that saved it; files alone start on any engine. The note explains why the engine is not the
// default one, if the request did not name it.
func (e engines) chooseEngine(req sandbox.CreateRequest, p *policy.Policy, t sandbox.Template) (chosen engine.Engine, note string, err error) {
	c, asked, from := e.choice(p), req.Engine, t.Origin
	c.Name, c.Images, c.Asked = asked, t.Kinds(), req.AtLeast
	if c.Asked != "" && !c.Asked.Known() {
		return nil, "", fault.Newf(fault.Invalid, "boundary_unknown", "there is no boundary %q", c.Asked).
			WithHint("boundaries from the weakest are none, shared-kernel, wasm-runtime, userspace-kernel, own-kernel")
	}
	c.Volumes = len(req.Volumes) > 0 || from != nil && len(from.Base.Volumes) > 0
	c.Containers = req.Containers
	for _, f := range req.Limits.Fields() {
		if *f.Value != 0 && f.Limit != "" {
			c.Limits = append(c.Limits, f.Limit)
		}
	}
	if req.OnEnd.Pause {
		c.Needs = append(c.Needs, neededToPause(req.OnEnd.FilesOnly))
	}
	if from == nil || asked != "" && from.FilesOnly {
		if chosen, err = e.Choose(c); err != nil {
			return nil, "", err
		}
		return chosen, e.WhyNotDefault(c, chosen), nil
	}
	origin, err := e.Of(from.Engine)
	if err != nil {
		return nil, "", err
	}
	if asked != "" && asked != from.Engine {
		if _, err := e.Named(asked); err != nil {
			return nil, "", err
		}
		return nil, "", fault.Newf(fault.Invalid, "snapshot_engine", "the memory of snapshot %s was saved by the engine %s, and %s cannot restore it", from.ID, from.Engine, asked).
			WithHint("omit the engine, or take a snapshot of files only")
	}
	return origin, "", e.Check(c, origin)
}

// template returns the default template of an engine: the host's tools, or an empty one for engines
// that run no programs of the host.
func (e engines) template(name string) string {
	eng, err := e.Named(name)
	if err != nil {
		return sandbox.BaseTemplate // the choice of the engine fails for the same reason, or finds one
	}
	kinds := eng.Info().Images
	if slices.Contains(kinds, engine.ImageModule) && !slices.Contains(kinds, engine.ImageHostView) {
		return sandbox.ModuleTemplate
	}
	return sandbox.BaseTemplate
}

// neededToPause returns the capability that an engine needs to pause a sandbox on disk.
func neededToPause(filesOnly bool) engine.Capability {
	if filesOnly {
		return engine.CanArchive
	}
	return engine.CanCheckpoint
}

// info describes the engine of a row.
func (e engines) info(name string) engine.Info {
	eng, err := e.Of(name)
	if err != nil {
		return engine.Info{} // the boot fails for the same reason
	}
	return eng.Info()
}

// imageFinder returns the ability of the requested engine, or of the default one, to find images in
// a store of its own, or nil.
func (e engines) imageFinder(asked string) engine.ImageFinder {
	if asked == "" {
		asked = e.Default().Info().Name
	}
	ability, _ := engine.As[engine.ImageFinder](e.Registry, asked)
	return ability
}

// meter returns an engine's ability to measure, or nil.
func (e engines) meter(name string) engine.Meter {
	ability, _ := engine.As[engine.Meter](e.Registry, name)
	return ability
}

// observer returns an engine's ability to write events about programs, or nil.
func (e engines) observer(name string) engine.Observer {
	ability, _ := engine.As[engine.Observer](e.Registry, name)
	return ability
}

// instance identifies a sandbox's instance on an engine.
type instance struct{ engine, id string }

// inventory lists the instances on the engines of this process.
type inventory struct {
	instances map[instance]bool
	// silent are the engines that did not list their instances, such as one whose service does not
	// answer. Their instances are unknown, so none of their sandboxes counts as lost.
	silent map[string]error
}

// has reports whether an instance exists, as far as its engine is known.
func (i inventory) has(wanted instance) bool {
	return i.instances[wanted] || i.silent[wanted.engine] != nil
}

// instances lists the instances on the engines of this process. The failure of one engine does not
// prevent listing the others.
func (e engines) instances(ctx context.Context) (inventory, error) {
	all := inventory{map[instance]bool{}, map[string]error{}}
	for _, eng := range e.All() {
		name := eng.Info().Name
		list, err := eng.List(ctx)
		if ctx.Err() != nil {
			return inventory{}, context.Cause(ctx)
		}
		if err != nil {
			all.silent[name] = err
			continue
		}
		for _, status := range list {
			all.instances[instance{name, status.ID}] = true
		}
	}
	return all, nil
}

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Codes of the faults of a Registry.
const (
	// CodeUnknown is the code of a request for an engine that is not registered.
	CodeUnknown = "engine_unknown"
	// CodeUnavailable is the code of an operation on a sandbox or snapshot whose engine is not
	// registered in this process.
	CodeUnavailable = "engine_unavailable"
	// CodeTooWeak is the code of a request whose policy requires a stronger boundary.
	CodeTooWeak = "boundary_too_weak"
	// CodeImage is the code of an image from which an engine cannot start a sandbox.
	CodeImage = "image_unsupported"
	// CodeVolumes is the code of a request for volumes on an engine that cannot attach them.
	CodeVolumes = "volumes_unsupported"
	// CodeContainers is the code of a request for containers inside a sandbox on an engine that
	// cannot run them.
	CodeContainers = "containers_unsupported"
	// CodeLimit is the code of a limit that an engine does not enforce on this host.
	CodeLimit = "limit_not_enforced"
	// CodeCapability is the code of a request that needs an ability that an engine lacks.
	CodeCapability = "capability_missing"
)

// Auto is the engine name with which a request leaves the choice to the registry.
const Auto = "auto"

// Registry is the set of engines of a process. It does not change after NewRegistry.
type Registry struct {
	engines  []Engine
	fallback Engine
}

// NewRegistry returns a registry of engines. The default engine is the one with the name
// defaultName, or the first if defaultName is "".
func NewRegistry(defaultName string, engines ...Engine) (*Registry, error) {
	r := &Registry{engines: slices.Clone(engines)}
	if len(r.engines) == 0 {
		return nil, errors.New("engine registry: no engine")
	}
	for i, name := range r.Names() {
		if name == "" || name == Auto || slices.Contains(r.Names()[:i], name) {
			return nil, fmt.Errorf("engine registry: the name %q is empty or taken", name)
		}
	}
	if r.fallback = r.engines[0]; defaultName == "" {
		return r, nil
	}
	var err error
	r.fallback, err = r.Named(defaultName)
	return r, err
}

// Default returns the engine for requests that name no engine.
func (r *Registry) Default() Engine { return r.fallback }

// All returns the engines in the order of their registration.
func (r *Registry) All() []Engine { return slices.Clone(r.engines) }

// Names returns the engines' names in the order of their registration.
func (r *Registry) Names() []string {
	names := make([]string, len(r.engines))
	for i, e := range r.engines {
		names[i] = e.Info().Name
	}
	return names
}

// Named returns the engine with this name.
func (r *Registry) Named(name string) (Engine, error) {
	if e := r.find(name); e != nil {
		return e, nil
	}
	return nil, fault.Newf(fault.Invalid, CodeUnknown, "unknown engine %q", name).
		WithHint("use one of " + strings.Join(r.Names(), ", "))
}

// Of returns the engine that made a sandbox or a snapshot, by the name in its database row. No
// other engine may use them: it cannot read the instance or the saved memory, and a strong boundary
// must not be replaced by a weaker one.
func (r *Registry) Of(name string) (Engine, error) {
	if e := r.find(name); e != nil {
		return e, nil
	}
	return nil, fault.Newf(fault.Unsupported, CodeUnavailable, "the engine %q of this sandbox or snapshot is not available in this process", name).
		WithHint("nothing was changed; run a crannog that has this engine (this one has " + strings.Join(r.Names(), ", ") + ")")
}

// Has reports whether an engine with this name is registered.
func (r *Registry) Has(name string) bool { return r.find(name) != nil }

// As returns the named engine as T, such as a Meter. It reports whether the engine is registered
// and implements T.
func As[T any](r *Registry, name string) (T, bool) {
	e, ok := r.find(name).(T)
	return e, ok
}

// find returns the engine with a name, or nil.
func (r *Registry) find(name string) Engine {
	for _, e := range r.engines {
		if e.Info().Name == name {
			return e
		}
	}
	return nil
}

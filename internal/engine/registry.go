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
	// CodeUnavailable is the code of an operation on what an engine made that is
	// not registered in this process.
	CodeUnavailable = "engine_unavailable"
	// CodeTooWeak is the code of a request whose policy requires a stronger boundary.
	CodeTooWeak = "boundary_too_weak"
	// CodeImage is the code of an image from which an engine cannot start a sandbox.
	CodeImage = "image_unsupported"
	// CodeLimit is the code of a limit that an engine does not enforce on this host.
	CodeLimit = "limit_not_enforced"
	// CodeCapability is the code of a request that needs an ability that an engine lacks.
	CodeCapability = "capability_missing"
)

// Registry is the set of engines of a process. It is closed: no engine is added
// or removed after NewRegistry.
type Registry struct {
	engines  []Engine
	fallback Engine
}

// NewRegistry returns a registry of engines whose default is the one named
// byDefault, or the first if byDefault is "".
func NewRegistry(byDefault string, engines ...Engine) (*Registry, error) {
	r := &Registry{engines: slices.Clone(engines)}
	if len(r.engines) == 0 {
		return nil, errors.New("engine registry: no engine")
	}
	for i, name := range r.Names() {
		if name == "" || slices.Contains(r.Names()[:i], name) {
			return nil, fmt.Errorf("engine registry: the name %q is empty or taken", name)
		}
	}
	if r.fallback = r.engines[0]; byDefault == "" {
		return r, nil
	}
	var err error
	r.fallback, err = r.Named(byDefault)
	return r, err
}

// Default returns the engine of requests that name none.
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

// Named returns the engine that a request names.
func (r *Registry) Named(name string) (Engine, error) {
	if e := r.find(name); e != nil {
		return e, nil
	}
	return nil, fault.Newf(fault.Invalid, CodeUnknown, "there is no engine %q", name).
		WithHint("engines are " + strings.Join(r.Names(), ", "))
}

// Of returns the engine that made a sandbox or a snapshot, by the name in its
// row. No other engine may touch it: its instance and its saved memory are of no
// use to another, and a stronger boundary must not become a weaker one.
func (r *Registry) Of(name string) (Engine, error) {
	if e := r.find(name); e != nil {
		return e, nil
	}
	return nil, fault.Newf(fault.Unsupported, CodeUnavailable, "its engine %q is not available in this process", name).
		WithHint("it is kept as it is; run a crannog that has this engine (here are " + strings.Join(r.Names(), ", ") + ")")
}

// Has reports whether an engine of this name is registered.
func (r *Registry) Has(name string) bool { return r.find(name) != nil }

// Ability returns the engine of a name as T, such as a Meter, and reports whether it is
// registered and has the ability.
func Ability[T any](r *Registry, name string) (T, bool) {
	able, ok := r.find(name).(T)
	return able, ok
}

func (r *Registry) find(name string) Engine {
	for _, e := range r.engines {
		if e.Info().Name == name {
			return e
		}
	}
	return nil
}

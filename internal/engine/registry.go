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
	// CodeTooWeak is the code of a request whose policy wants a stronger boundary.
	CodeTooWeak = "boundary_too_weak"
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

// Choice is what a request and its policy say about the engine.
type Choice struct {
	Name  string   // the engine that was asked for, or ""
	Least Boundary // the weakest boundary that the policy accepts
	// AnyBoundary accepts an engine without a boundary in any case: for tests only.
	AnyBoundary bool
}

// Enough reports whether the boundary is strong enough for the choice.
func (c Choice) Enough(b Boundary) bool {
	return b.AtLeast(c.Least) || b == NoBoundary && c.AnyBoundary
}

// Choose returns the engine of a new sandbox: the one that was asked for, the
// default, or the engine with the weakest boundary that is enough. An engine that
// was asked for and is too weak is refused, never exchanged.
func (r *Registry) Choose(c Choice) (Engine, error) {
	if c.Name != "" {
		e, err := r.Named(c.Name)
		if err == nil {
			err = r.Check(c, e)
		}
		return e, err
	}
	if c.Enough(r.fallback.Info().Boundary) {
		return r.fallback, nil
	}
	if enough := r.enough(c); len(enough) > 0 {
		return enough[0], nil
	}
	return nil, r.Check(c, r.fallback)
}

// Check refuses an engine whose boundary is weaker than the choice accepts.
func (r *Registry) Check(c Choice, e Engine) error {
	have := e.Info()
	if c.Enough(have.Boundary) {
		return nil
	}
	hint := "no engine here is enough: choose another level, or a policy with a lower isolation.at_least"
	if enough := r.enough(c); len(enough) > 0 {
		hint = "use --engine " + enough[0].Info().Name + ", or a policy with a lower isolation.at_least"
	}
	return fault.Newf(fault.Unsupported, CodeTooWeak, "the policy wants a boundary of at least %s, and the engine %s has %s",
		c.Least, have.Name, have.Boundary).WithHint(hint)
}

// enough returns the engines that are strong enough, the weakest first: a
// stronger boundary costs more time and memory than the policy asks for.
func (r *Registry) enough(c Choice) []Engine {
	list := slices.DeleteFunc(r.All(), func(e Engine) bool { return !c.Enough(e.Info().Boundary) })
	slices.SortStableFunc(list, func(a, b Engine) int {
		return strength[a.Info().Boundary] - strength[b.Info().Boundary]
	})
	return list
}

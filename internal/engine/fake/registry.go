package fake

import "github.com/crannog/crannog/internal/engine"

// Registry returns a registry of engines for a test, the first of which is the
// default. It panics where engine.NewRegistry fails.
func Registry(engines ...engine.Engine) *engine.Registry {
	r, err := engine.NewRegistry("", engines...)
	if err != nil {
		panic(err)
	}
	return r
}

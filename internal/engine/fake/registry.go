package fake

import "github.com/crannog/crannog/internal/engine"

// Registry returns a registry of engines for a test. The first engine is the default. Registry
// panics where engine.NewRegistry returns an error.
func Registry(engines ...engine.Engine) *engine.Registry {
	r, err := engine.NewRegistry("", engines...)
	if err != nil {
		panic(err)
	}
	return r
}

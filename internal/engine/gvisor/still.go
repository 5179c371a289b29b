package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platforms of kernels: gVisor's own, and the same without running any program. gVisor lets all
// programs of a restored state run before it can be told to pause them. A caller that reads only
// files needs them as they were saved.
const (
	running = "systrap"
	still   = "crannog-still"
)

// registerStill makes the second platform known: to the kernel that is made on
// it, and to the child that asks for that kernel.
func registerStill() {
	if systrap, err := platform.Lookup(running); err == nil {
		platform.Register(still, stillConstructor{systrap})
	}
}

type stillConstructor struct{ platform.Constructor }

// New implements platform.Constructor.
func (s stillConstructor) New(opts platform.Options) (platform.Platform, error) {
	p, err := s.Constructor.New(opts)
	if err != nil {
		return nil, err
	}
	return stillPlatform{p}, nil
}

type stillPlatform struct{ platform.Platform }

// NewContext implements platform.Platform.
func (s stillPlatform) NewContext(ctx context.Context) platform.Context {
	return &stillContext{Context: s.Platform.NewContext(ctx), interrupted: make(chan struct{}, 1)}
}

// stillContext is a thread of a program that never gets to its next instruction.
type stillContext struct {
	platform.Context
	interrupted chan struct{}
}

// Switch implements platform.Context. It waits until the kernel wants the
// thread back.
func (c *stillContext) Switch(context.Context, platform.MemoryManager, *arch.Context64, int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	<-c.interrupted
	return nil, hostarch.NoAccess, platform.ErrContextInterrupt
}

// Interrupt implements platform.Context: an interrupt that comes before Switch
// is for the next one.
func (c *stillContext) Interrupt() {
	select {
	case c.interrupted <- struct{}{}:
	default:
	}
}

// Preempt implements platform.Context. Nothing runs that could be preempted.
func (c *stillContext) Preempt() {}

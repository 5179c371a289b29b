package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// Platforms of kernels: gVisor's own, and one that runs no program. gVisor runs all programs of a
// restored state before it accepts a request to pause them. A caller that only reads files needs
// the files as they were saved.
const (
	running         = "systrap"
	reducedPlatform = "crannog-still"
)

// registerReducedPlatform registers the second platform for the kernel that uses it, and for the
// child that creates that kernel.
func registerReducedPlatform() {
	if systrap, err := platform.Lookup(running); err == nil {
		platform.Register(reducedPlatform, reducedConstructor{systrap})
	}
}

type reducedConstructor struct{ platform.Constructor }

// New implements platform.Constructor.
func (s reducedConstructor) New(opts platform.Options) (platform.Platform, error) {
	p, err := s.Constructor.New(opts)
	if err != nil {
		return nil, err
	}
	return reducedPlatformType{p}, nil
}

type reducedPlatformType struct{ platform.Platform }

// NewContext implements platform.Platform.
func (s reducedPlatformType) NewContext(ctx context.Context) platform.Context {
	return &reducedContext{Context: s.Platform.NewContext(ctx), interrupted: make(chan struct{}, 1)}
}

// reducedContext is a thread of a program that does not execute instructions.
type reducedContext struct {
	platform.Context
	interrupted chan struct{}
}

// Switch implements platform.Context. It waits until the kernel interrupts the thread.
func (c *reducedContext) Switch(context.Context, platform.MemoryManager, *arch.Context64, int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	<-c.interrupted
	return nil, hostarch.NoAccess, platform.ErrContextInterrupt
}

// Interrupt implements platform.Context. An interrupt that arrives before Switch applies to the
// next one.
func (c *reducedContext) Interrupt() {
	select {
	case c.interrupted <- struct{}{}:
	default:
	}
}

// Preempt implements platform.Context. Nothing runs, so there is nothing to preempt.
func (c *reducedContext) Preempt() {}

package gvisor

import (
	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/platform"
)

const (
	// systrapName is gVisor's platform that runs programs.
	systrapName = "systrap"
	// idlePlatformName is a platform that runs no program. gVisor runs all programs of a restored
	// state before it accepts a request to pause them, but a caller that reads the state's files
	// needs them as they were saved.
	idlePlatformName = "crannog-still"
)

// registerIdlePlatform registers the idle platform. The kernel that uses it and the child that
// creates that kernel call it.
func registerIdlePlatform() {
	if systrap, err := platform.Lookup(systrapName); err == nil {
		platform.Register(idlePlatformName, idleConstructor{systrap})
	}
}

// idleConstructor creates idle platforms.
type idleConstructor struct{ platform.Constructor }

// New implements platform.Constructor.
func (s idleConstructor) New(opts platform.Options) (platform.Platform, error) {
	p, err := s.Constructor.New(opts)
	if err != nil {
		return nil, err
	}
	return idlePlatform{p}, nil
}

// idlePlatform runs no program.
type idlePlatform struct{ platform.Platform }

// NewContext implements platform.Platform.
func (s idlePlatform) NewContext(ctx context.Context) platform.Context {
	return &idleContext{Context: s.Platform.NewContext(ctx), interrupted: make(chan struct{}, 1)}
}

// idleContext is a thread of a program that does not execute instructions.
type idleContext struct {
	platform.Context
	interrupted chan struct{}
}

// Switch implements platform.Context. It waits until the kernel interrupts the thread.
func (c *idleContext) Switch(context.Context, platform.MemoryManager, *arch.Context64, int32) (*linux.SignalInfo, hostarch.AccessType, error) {
	<-c.interrupted
	return nil, hostarch.NoAccess, platform.ErrContextInterrupt
}

// Interrupt implements platform.Context. An interrupt that arrives before Switch applies to the
// next Switch.
func (c *idleContext) Interrupt() {
	select {
	case c.interrupted <- struct{}{}:
	default:
	}
}

// Preempt implements platform.Context. It does nothing, because no program runs.
func (c *idleContext) Preempt() {}
